// Command promptfed runs federated prompt learning over frozen CLIP-like models. See the README, or promptfed help.
package main

import "promptfed/tools/promptfed/command"

func main() { command.Main() }

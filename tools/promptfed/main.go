// Command promptfed runs federated prompt learning over frozen CLIP-like models. See the README, or promptfed help.
// Commands across machines are in the program promptfed-net beside it.
package main

import "promptfed/tools/promptfed/command"

func main() { command.Main(command.Handover) }

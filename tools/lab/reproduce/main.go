// Command reproduce compares published numbers with those of runs on this machine: see package published.
package main

import "promptfed/tools/lab/reproduce/published"

func main() { published.Main() }

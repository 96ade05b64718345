// Command promptfed is promptfed with the methods of this module.
package main

import (
	_ "example.com/taskres"

	"promptfed/tools/promptfed/command"
	"promptfed/tools/promptfed/distributed"
)

func main() { command.Main(distributed.Machines) }

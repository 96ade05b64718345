// Command promptfed is promptfed with the methods of this module.
package main

import (
	_ "example.com/taskres"

	"promptfed/tools/promptfed/command"
)

func main() { command.Main() }

// Command promptfed-net is promptfed with everything across machines: the commands serve, join, status, certs, work and
// launch, and the flag --cluster. The program promptfed hands these over to it.
package main

import (
	"fmt"
	"os"

	"promptfed/tools/promptfed/command"
	"promptfed/tools/promptfed/distributed"
)

func main() {
	if err := command.CheckCaller(); err != nil {
		fmt.Fprintln(os.Stderr, "promptfed:", err)
		os.Exit(1)
	}
	command.Main(distributed.Machines)
}

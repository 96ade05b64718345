package command

import (
	"fmt"

	"promptfed/tools/report/tables"
)

func percent(v float64) string { return fmt.Sprintf("%.2f", 100*v) }

// align sets rows in columns; the first row is the header, the first two columns are text.
func align(rows [][]string) string { return tables.Plain(rows, 2) }

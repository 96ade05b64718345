package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// resultTables returns the tables of the global and the personal evaluation in docs/results.csv. They show standard
// deviations above 4 points, and a star for p values below 0.05.
func resultTables(path string) (global, personal string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", "", err
	}
	defer f.Close()

	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", path, err)
	}

	// columns: evaluation, method, rank, mean and deviation of each task, difference, p
	heads, difference := rows[0], len(rows[0])-2
	cells := func(row []string) []string {
		out := slices.Clone(row[1:3])
		for i := 3; i < difference; i += 2 {
			cell := row[i]
			if std, err := strconv.ParseFloat(row[i+1], 64); err == nil && std > 4 {
				cell += " ± " + row[i+1]
			}
			out = append(out, cell)
		}

		over := strings.Replace(row[difference], "-", "−", 1)
		if over == "" {
			over = "–"
		}

		if p, err := strconv.ParseFloat(row[difference+1], 64); err == nil && p < 0.05 {
			over += " *"
		}

		return append(out, over)
	}

	described := func(evaluation string) string {
		some := slices.DeleteFunc(slices.Clone(rows), func(row []string) bool { return row[0] != evaluation })
		return table(some, cells, strings.Split(strings.ReplaceAll(strings.Join(cells(heads), ","), "_", " "), ",")...)
	}

	return described("global"), described("personal"), nil
}

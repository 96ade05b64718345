package parquet

import "promptfed/federation/data/sets/settest"

var openSet, mustOpen = settest.Openers(Kind)

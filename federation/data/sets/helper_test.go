package sets

import "promptfed/federation/data/sets/settest"

var _, mustOpen = settest.Openers(kinds...)

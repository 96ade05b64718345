package page

// Limits on what one page carries, in numbers. A hundred runs of a hundred rounds with a hundred clients stay under 15
// MB.
const (
	maxCurveNumbers  = 600_000   // over all runs, groups and metrics; longer curves are thinned
	maxClientNumbers = 1_200_000 // per-client curves; runs beyond have none
	maxCounts        = 800_000   // entries of partitions; partitions beyond are left out
)

// block is the data that the page's script draws from. Rounds that several curves share stand in X once.
type block struct {
	Metrics []blockMetric `json:"metrics"`
	X       [][]int       `json:"x"`
	Groups  []blockGroup  `json:"groups"`
	Runs    []blockRun    `json:"runs"`
	Parts   []blockPart   `json:"parts"`
}

type blockMetric struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Unit  string `json:"unit"`
}

type blockGroup struct {
	Name   string       `json:"name"`
	Runs   []int        `json:"runs"`
	Curves []blockCurve `json:"curves"`
}

// blockCurve refers to a metric and to rounds by their places.
type blockCurve struct {
	Metric int     `json:"m"`
	X      int     `json:"x"`
	Y      numbers `json:"y"`
	Std    numbers `json:"s,omitempty"`
}

type blockRun struct {
	Name    string        `json:"name"`
	Group   int           `json:"group"`
	Curves  []blockCurve  `json:"curves"`
	Clients *blockClients `json:"clients,omitempty"`
	Part    int           `json:"part"` // -1 where unknown
}

type blockClients struct {
	Metric int       `json:"m"`
	X      int       `json:"x"`
	Y      []numbers `json:"y"` // [client][round]
}

// blockPart is a partition; runs that hand out the same examples share one.
type blockPart struct {
	Classes []string      `json:"classes"`
	Clients []blockClient `json:"clients"`
}

type blockClient struct {
	Backbone string  `json:"b"`
	Domain   string  `json:"d"`
	Counts   [][]int `json:"n"` // train, val, test: class, count, class, count of what is not empty; null where unknown
}

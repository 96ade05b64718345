package clip

import "slices"

// packing places the suffixes of all classes into blocks of equal size, each suffix in consecutive rows of one block.
// Linear layers then see rows without padding (but for a few where the sizes do not work out), and attention among the
// tokens of a suffix is one batched product over blocks with a mask that keeps classes apart.
type packing struct {
	blocks, size int   // rows are blocks·size
	start        []int // first row of each class
	length       []int // of each class
}

// maxBlock bounds the rows of a block, and with them the scores that are computed and masked away.
const maxBlock = 64

// rowCost is what one more row costs in linear layers, in units of what one more key per row costs in attention.
const rowCost = 800

// minBlock is the smallest block that is tried while there are more rows: below, the products of a block are too small
// to run well.
const minBlock = 12

// pack chooses the block size that costs least.
func pack(lengths []int) packing {
	longest, total := slices.Max(lengths), 0
	for _, n := range lengths {
		total += n
	}
	if total <= maxBlock {
		return fill(lengths, iota(len(lengths)), total)
	}
	order := make([]int, len(lengths))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return lengths[b] - lengths[a] })
	var best packing
	cost := 0
	for size := max(longest, minBlock); size <= max(longest, maxBlock); size++ {
		p := fill(lengths, order, size)
		if c := p.rows() * (rowCost + size); best.size == 0 || c < cost {
			best, cost = p, c
		}
	}
	return best
}

func (p packing) rows() int { return p.blocks * p.size }

// fill puts the classes, in the given order, each into the first block that has room.
func fill(lengths, order []int, size int) packing {
	p := packing{size: size, start: make([]int, len(lengths)), length: lengths}
	var used []int
	for _, c := range order {
		b := slices.IndexFunc(used, func(u int) bool { return u+lengths[c] <= size })
		if b < 0 {
			b = len(used)
			used = append(used, 0)
		}
		p.start[c] = b*size + used[b]
		used[b] += lengths[c]
	}
	p.blocks = len(used)
	if p.blocks == 1 {
		p.size = used[0]
	}
	return p
}

// last is the row of each class that the features are read from.
func (p packing) last() []int {
	out := make([]int, len(p.start))
	for c := range out {
		out[c] = p.start[c] + p.length[c] - 1
	}
	return out
}

// queries arranges the classes by block for attention with one query each: take lists, block by block, the class of
// each query, padded to equally many queries a block by repeating one of its classes; place is where class c's query
// went.
func (p packing) queries() (take, place []int) {
	width := 0
	in := make([][]int, p.blocks)
	for c, s := range p.start {
		in[s/p.size] = append(in[s/p.size], c)
	}
	for _, cs := range in {
		width = max(width, len(cs))
	}
	place = make([]int, len(p.start))
	for b, cs := range in {
		for i := range width {
			c := cs[min(i, len(cs)-1)]
			take = append(take, c)
			if i < len(cs) {
				place[c] = b*width + i
			}
		}
	}
	return take, place
}

// owner is the class and the place in its suffix of each row; class -1 for a row that only fills up a block.
func (p packing) owner() (class, place []int) {
	class, place = slices.Repeat([]int{-1}, p.rows()), make([]int, p.rows())
	for c, s := range p.start {
		for j := range p.length[c] {
			class[s+j], place[s+j] = c, j
		}
	}
	return class, place
}

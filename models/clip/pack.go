package clip

import (
	"slices"

	"promptfed/runtime/tensor"
)

// packing places the suffixes of all classes in blocks of equal size, each suffix in consecutive rows of one block.
// Linear layers then process rows with almost no padding, and attention among the tokens of a suffix is one batched
// product over blocks with a mask that separates classes.
type packing struct {
	blocks, size int   // there are blocks·size rows
	start        []int // first row of each class
	length       []int // of each class
}

// maxBlock limits the rows of a block, and with them the scores that are computed and then masked.
const maxBlock = 64

// rowCost is the cost of one more row in linear layers, relative to the cost of one more key per row in attention.
const rowCost = 800

// minBlock is the smallest block size that is tried if there are more rows: smaller products are inefficient.
const minBlock = 12

// pack chooses the block size with the lowest cost.
func pack(lengths []int) packing {
	longest, total := slices.Max(lengths), 0
	for _, n := range lengths {
		total += n
	}

	if total <= maxBlock {
		return fill(lengths, tensor.Indices(len(lengths)), total)
	}

	order := tensor.Order(len(lengths), func(a, b int) int { return lengths[b] - lengths[a] })
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

// fill places the classes, in the given order, in the first block with enough room.
func fill(lengths, order []int, size int) packing {
	packing := packing{size: size, start: make([]int, len(lengths)), length: lengths}
	var used []int
	for _, c := range order {
		b := slices.IndexFunc(used, func(u int) bool { return u+lengths[c] <= size })
		if b < 0 {
			b = len(used)
			used = append(used, 0)
		}
		packing.start[c] = b*size + used[b]
		used[b] += lengths[c]
	}

	packing.blocks = len(used)
	if packing.blocks == 1 {
		packing.size = used[0]
	}

	return packing
}

// last returns the row of each class from which its features are read, after the given number of other rows.
func (p packing) last(before int) []int {
	out := make([]int, len(p.start))
	for c := range out {
		out[c] = before + p.start[c] + p.length[c] - 1
	}
	return out
}

// queries arranges the classes by block for attention with one query each. take lists the class of each query, block by
// block; blocks are padded to the same number of queries by repeating one of their classes. place is the position of
// class c's query.
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

// owner returns the class of each row and its position in the class's suffix; the class is -1 for a padding row.
func (p packing) owner() (class, place []int) {
	class, place = slices.Repeat([]int{-1}, p.rows()), make([]int, p.rows())
	for c, s := range p.start {
		for j := range p.length[c] {
			class[s+j], place[s+j] = c, j
		}
	}
	return class, place
}

package source

// Cell is a class in a domain, as numbers of a set.
type Cell struct{ Label, Domain int }

// HoldOut returns the split, train or test, of every image of a set without splits; cells holds the cells of the
// images, in order. Two of every ten images of a cell are test images: the last two of each full ten, and the last
// round(r/5) of the r remaining images; in a cell of two to nine images, at least one. So a cell of two or more images
// has both splits, and the split of a cell depends on no other cell. Images that are alone in their cell form one group
// for each class, in the order of their domains, which is split in the same way. A class of a single image has only a
// training image.
func HoldOut(cells []Cell) []string {
	groups, alone := map[Cell][]int{}, map[int][]int{} // positions in cells
	for i, c := range cells {
		groups[c] = append(groups[c], i)
	}
	out := make([]string, len(cells))
	split := func(group []int) {
		for i, at := range group {
			out[at] = "train"
			if heldOut(i, len(group)) {
				out[at] = "test"
			}
		}
	}
	for i, c := range cells {
		if len(groups[c]) == 1 {
			alone[c.Label] = append(alone[c.Label], i)
		}
	}
	for _, group := range groups {
		if len(group) > 1 {
			split(group)
		}
	}
	for _, group := range alone {
		split(group)
	}
	return out
}

// heldOut reports whether image i of a group of n is a test image.
func heldOut(i, n int) bool {
	rest := n % 10
	if i < n-rest {
		return i%10 >= 8
	}
	tested := (rest + 2) / 5 // round(rest/5)
	if n > 1 && n < 10 {
		tested = max(1, tested)
	}
	return i >= n-tested
}

// HoldOutInDomain returns the split of the office sets in FedPHA's public code (utils/data_utils.py): image i of a
// domain of n, in the order of classes and files, is a training image if i mod 10 is at most 7. Office-31 gets 3,292
// training and 818 test images. A class may have no test image in a domain.
func HoldOutInDomain(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = "train"
		if i%10 > 7 {
			out[i] = "test"
		}
	}
	return out
}

package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Ordinals are numbers of faults, from 1 on, in rising order.
type Ordinals []int

// Has reports whether n is among them.
func (o Ordinals) Has(n int) bool {
	_, ok := slices.BinarySearch(o, n)
	return ok
}

// With is o and more.
func (o Ordinals) With(more ...int) Ordinals {
	all := slices.Concat(o, more)
	slices.SortFunc(all, cmp.Compare[int])
	return slices.Compact(all)
}

// String writes them as [ParseOrdinals] reads them: "3,7-12".
func (o Ordinals) String() string {
	var parts []string
	for i := 0; i < len(o); {
		j := i
		for j+1 < len(o) && o[j+1] == o[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, strconv.Itoa(o[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", o[i], o[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// mostOrdinals is how many one list may have: more than any world has.
const mostOrdinals = 100_000

// ParseOrdinals reads a list such as "3,7-12".
func ParseOrdinals(text string) (Ordinals, error) {
	var out Ordinals
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		a, err := strconv.Atoi(low)
		b, err2 := strconv.Atoi(high)
		if err != nil || err2 != nil || a < 1 || b < a || b > mostOrdinals {
			return nil, fmt.Errorf("want numbers from 1 to %d, such as 3,7-12", mostOrdinals)
		}
		for n := a; n <= b; n++ {
			out = append(out, n)
		}
	}
	return Ordinals{}.With(out...), nil
}

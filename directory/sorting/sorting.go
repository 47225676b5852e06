// Package sorting sorts short lists, and those that are sorted rarely, by one copy of the
// algorithm.
//
// slices.SortFunc is compiled anew for each type of element, and each copy takes some 13 KB of the
// program. The functions here take some 800 bytes for a type, and more time for each comparison.
// Code that sorts long lists for each request or page uses package slices.
package sorting

import (
	"iter"
	"slices"
	"sort"
)

// Func sorts list by compare, as slices.SortFunc does. Equal elements end in any order.
func Func[T any](list []T, compare func(a, b T) int) {
	sort.Slice(list, func(i, j int) bool { return compare(list[i], list[j]) < 0 })
}

// StableFunc sorts list by compare, and keeps the order of equal elements.
func StableFunc[T any](list []T, compare func(a, b T) int) {
	sort.SliceStable(list, func(i, j int) bool { return compare(list[i], list[j]) < 0 })
}

// Collect returns the elements of all, sorted by compare; nil if there are none.
func Collect[T any](all iter.Seq[T], compare func(a, b T) int) []T {
	list := slices.Collect(all)
	Func(list, compare)

	return list
}

// Package spelling finds the known name that a misspelt one was meant to be.
//
//	spelling.IsNear("protcols", "protocols")            // one edit
//	spelling.IsNear("inputSchema", "input_schema")      // another convention
//	spelling.Nearest("agnet", []string{"agent", "tag"}) // agent
package spelling

import "strings"

// shortest is the length in bytes of the shortest name that has a neighbour: most pairs of
// shorter ones are one edit apart.
const shortest = 3

// longest is the length in bytes of the longest name that is compared by Nearest.
const longest = 64

// IsNear reports whether a name, which is not the known one, differs from it by one edit (a
// byte is added, removed or replaced, or two neighbours are swapped), or only in case,
// underscores and hyphens.
func IsNear(name, known string) bool {
	if name == known || min(len(name), len(known)) < shortest {
		return false
	}

	return isOneEdit(name, known) || isOtherConvention(name, known)
}

// isOneEdit cuts the common beginning and end of both names, which leaves the edit.
func isOneEdit(a, b string) bool {
	if len(a) > len(b)+1 || len(b) > len(a)+1 {
		return false
	}

	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}

	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}

	switch {
	case len(a) <= 1 && len(b) <= 1:
		return true
	case len(a) == 2 && len(b) == 2:
		return a[0] == b[1] && a[1] == b[0]
	}

	return false
}

// separators separate the words of a name in one convention and are absent in others.
const separators = "_-"

// isOtherConvention compares two names without case and separators, in place.
func isOtherConvention(a, b string) bool {
	for {
		a = strings.TrimLeft(a, separators)
		b = strings.TrimLeft(b, separators)

		if a == "" || b == "" {
			return a == b
		}

		if lower(a[0]) != lower(b[0]) {
			return false
		}

		a, b = a[1:], b[1:]
	}
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}

	return c
}

// Nearest returns the known name with the fewest edits from a name, at most a third of the
// name's length and at least one; "" if there is none.
func Nearest(name string, known []string) (nearest string) {
	if len(name) > longest {
		return ""
	}

	fewest := max(len(name)/3, 1) + 1

	for _, candidate := range known {
		// A name in another convention may be many edits away.
		if IsNear(name, candidate) {
			return candidate
		}

		if len(candidate) > longest || len(candidate) < shortest {
			continue
		}

		if edits := distance(name, candidate); edits < fewest {
			fewest = edits
			nearest = candidate
		}
	}

	return nearest
}

// distance returns the number of edits between two names: their optimal string alignment.
func distance(a, b string) int {
	before := make([]int, len(b)+1) // the row before the last
	last := make([]int, len(b)+1)
	row := make([]int, len(b)+1)

	for j := range last {
		last[j] = j
	}

	for i := 1; i <= len(a); i++ {
		row[0] = i

		for j := 1; j <= len(b); j++ {
			replaced := last[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}

			row[j] = min(last[j]+1, row[j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}

		// A swap looks two rows back, so three rows are kept in turn.
		before, last, row = last, row, before
	}

	return last[len(b)]
}

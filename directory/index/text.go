package index

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfc returns the NFC form of s; ASCII takes a fast path.
func nfc(s string) string {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return norm.NFC.String(s)
		}
	}

	return s
}

// same reports whether a registered text equals one of a query, which is in NFC. The empty
// text equals nothing.
func same(registered, asked string) bool {
	return asked != "" && (registered == asked || nfc(registered) == asked)
}

// hasAll reports whether every text of asked is in one of the lists.
func hasAll(asked []string, lists ...[]string) bool {
	for _, a := range asked {
		if !slices.ContainsFunc(lists, func(l []string) bool {
			return slices.ContainsFunc(l, func(s string) bool { return same(s, a) })
		}) {
			return false
		}
	}

	return true
}

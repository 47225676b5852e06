package cli

import (
	"slices"
	"strings"
)

// Escape sequences for emphasis.
const (
	escapeBold   = "\x1b[1m"
	escapeRed    = "\x1b[31m"
	escapeGreen  = "\x1b[32m"
	escapeYellow = "\x1b[33m"
	escapeEnd    = "\x1b[m"
)

// colours are the colours of states, by the words with which a cell begins. The words say the
// same without them.
var colours = map[string]string{
	"ok": escapeGreen, "ready": escapeGreen, "active": escapeGreen, "valid": escapeGreen, "alive": escapeGreen,
	"verified": escapeGreen, "leader": escapeGreen, "voter": escapeGreen, "yes": escapeGreen, "healthy": escapeGreen,

	"warning": escapeYellow, "expires soon": escapeYellow, "nearly full": escapeYellow,
	"nearly used up": escapeYellow, "not confirmed": escapeYellow, "not exported": escapeYellow,
	"suspect": escapeYellow, "learner": escapeYellow, "unknown": escapeYellow, "pending": escapeYellow,
	"degraded": escapeYellow, "unconfirmed": escapeYellow, "stale": escapeYellow, "mismatch": escapeYellow,

	"failed": escapeRed, "no": escapeRed, "not ready": escapeRed, "silent": escapeRed, "missing": escapeRed,
	"expired": escapeRed, "full": escapeRed, "frozen": escapeRed, "unreachable": escapeRed, "dead": escapeRed,
	"refused": escapeRed, "refused by peer": escapeRed, "disputed": escapeRed, "revoked": escapeRed,
	"no leader": escapeRed, "no majority": escapeRed, "critical": escapeRed,
}

// stateColumns are the headings of columns with states.
var stateColumns = []string{"STATE", "STATUS", "RESULT", "OUTCOME", "VERDICT"}

// colourOf returns the escape sequence of a cell's colour; empty without one.
func colourOf(heading, cell string) string {
	if !slices.Contains(stateColumns, heading) {
		return ""
	}

	words := strings.ToLower(cell)
	if end := strings.IndexAny(words, ",:;("); end >= 0 {
		words = words[:end]
	}

	words, _, _ = strings.Cut(words, " since ")

	return colours[strings.TrimSpace(words)]
}

// emphasize returns text in the emphasis of an escape sequence, which may be empty.
func emphasize(text, escape string) string {
	if escape == "" {
		return text
	}

	return escape + text + escapeEnd
}

package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// FirstLine returns text up to its first line break.
func FirstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// ShellQuote returns text as one word of a POSIX shell.
func ShellQuote(text string) string {
	if text != "" && !strings.ContainsFunc(text, needsQuotes) {
		return text
	}

	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func needsQuotes(r rune) bool {
	return r >= 0x80 || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:@%+=,", r)
}

// FormatTime returns a time as the HTTP responses have it, in seconds. The zero time is
// empty.
func FormatTime(at time.Time) string {
	if at.IsZero() {
		return ""
	}

	return at.UTC().Format(time.RFC3339)
}

// FormatMillis returns a time with milliseconds, for lines whose order matters. The zero time is
// empty.
func FormatMillis(at time.Time) string {
	if at.IsZero() {
		return ""
	}

	return at.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// fromNow returns a distance in time in a unit that is exact enough: "in 90 s", "3 h ago".
func fromNow(left time.Duration) string {
	const day = 24 * time.Hour

	size := left.Abs().Round(time.Second)
	count, unit := size/time.Second, "s"

	// A unit begins at two, because the rest that is cut off would be up to half of a single one.
	switch {
	case size == 0:
		return "now"
	case size >= 2*365*day:
		count, unit = size/(365*day), "years"
	case size >= 2*day:
		count, unit = size/day, "days"
	case size >= 2*time.Hour:
		count, unit = size/time.Hour, "h"
	case size >= 2*time.Minute:
		count, unit = size/time.Minute, "min"
	}

	if left > 0 {
		return fmt.Sprintf("in %d %s", count, unit)
	}

	return fmt.Sprintf("%d %s ago", count, unit)
}

// FormatAge returns a time that has passed, in its largest unit.
func FormatAge(age time.Duration) string {
	const day = 24 * time.Hour

	count, unit := int64(age/day), "day"
	switch {
	case age < time.Minute:
		count, unit = int64(age/time.Second), "second"
	case age < time.Hour:
		count, unit = int64(age/time.Minute), "minute"
	case age < day:
		count, unit = int64(age/time.Hour), "hour"
	}

	if count != 1 {
		unit += "s"
	}

	return strconv.FormatInt(count, 10) + " " + unit
}

// WholeSeconds returns a lifetime as flags and the protocol have it.
func WholeSeconds(d time.Duration) uint64 { return uint64(d / time.Second) }

// YesNo returns a boolean as a word.
func YesNo(b bool) string {
	if b {
		return "yes"
	}

	return "no"
}

// NonZero returns a number in decimal, or nothing for 0.
func NonZero(n uint64) string {
	if n == 0 {
		return ""
	}

	return strconv.FormatUint(n, 10)
}

package cli

import (
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

// FormatMillis returns a time with milliseconds, as registrations have it. The zero time is
// empty.
func FormatMillis(at time.Time) string {
	if at.IsZero() {
		return ""
	}

	return at.UTC().Format("2006-01-02T15:04:05.000Z07:00")
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

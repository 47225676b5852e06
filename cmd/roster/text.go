package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// safe returns s fit to be shown to a person: control characters, the ones that
// change the direction of writing and those that can't be seen are written as
// escapes. What registrants wrote, and errors that may quote it, is shown through
// this only (AD-072).
func safe(s string) string {
	if !strings.ContainsFunc(s, unseen) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !unseen(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}

// unseen reports whether r acts on a terminal instead of being seen there. The
// two joiners are left alone: scripts and emoji are spelt with them.
func unseen(r rune) bool {
	if r == '\u200c' || r == '\u200d' {
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs)
}

// firstLine returns s up to its first line break.
func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// shorten returns s cut to n characters, with an ellipsis where it was.
func shorten(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:n-1]) + "…"
}

// shellQuote returns s as one word of a POSIX shell.
func shellQuote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r >= 0x80 || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:@%+=,", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// stamp writes a time as the HTTP answers do; a time that never was is empty.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// instant is stamp with milliseconds, as registrations have their times.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// inSeconds returns a lifetime as the command line and the wire have it.
func inSeconds(d time.Duration) uint64 { return uint64(d / time.Second) }

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// counted is a number that there is something to say of.
func counted(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

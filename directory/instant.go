package directory

import (
	"errors"
	"regexp"
	"strconv"
	"time"
)

// instant is a date-time (RFC 3339, 5.6): a date, T, a time with optional fraction, and Z or an
// offset. Letters may be in lower case.
var instant = regexp.MustCompile(`^(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}):(\d{2})((?:\.\d+)?)` +
	`(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))$`)

var errInstant = errors.New("not a time as RFC 3339 writes it, such as 2026-06-01T12:00:00Z")

// ParseInstant parses a time as RFC 3339 writes it. Package time takes more: a comma before the
// fraction, an hour of one digit and offsets of a day; and less: no letter in lower case and no
// leap second, which is the instant after it here.
func ParseInstant(text string) (time.Time, error) {
	parts := instant.FindStringSubmatch(text)
	if parts == nil {
		return time.Time{}, errInstant
	}

	date, clock, second, fraction := parts[1], parts[2], parts[3], parts[4]

	// Package time takes no leap second, so the second before is parsed.
	isLeap := second == "60"
	if isLeap {
		second = "59"
	}

	at, err := time.Parse("2006-01-02T15:04:05.999999999", date+"T"+clock+":"+second+fraction)
	if err != nil {
		return time.Time{}, errInstant
	}

	if parts[5] != "" {
		hours, _ := strconv.Atoi(parts[6])
		minutes, _ := strconv.Atoi(parts[7])

		offset := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
		if parts[5] == "-" {
			offset = -offset
		}

		at = at.Add(-offset)
	}

	if !isLeap {
		return at, nil
	}

	next := at.Truncate(time.Second).Add(time.Second)
	if next.Day() != 1 || next.Hour() != 0 || next.Minute() != 0 || next.Second() != 0 {
		return time.Time{}, errInstant // a leap second is the last one of a month in UTC
	}

	return next, nil
}

package contain

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// Requirement: FORM-006
func TestAPanicEndsOneItemAndIsLoggedOncePerCause(t *testing.T) {
	var log bytes.Buffer
	p := New(slog.New(slog.NewTextHandler(&log, nil)))

	items, done := []int{1, 0, 2, 0}, 0
	for _, item := range items {
		err := p.Run(Record, func() error {
			done += 2 / item
			return nil
		})

		var contained *Error
		if (item == 0) != errors.As(err, &contained) {
			t.Errorf("item %d: %v", item, err)
		}
	}

	if done != 3 || p.Count(Record) != 2 || p.Count(Page) != 0 {
		t.Errorf("done %d, contained %d and %d", done, p.Count(Record), p.Count(Page))
	}

	if n := strings.Count(log.String(), "contain_test.go"); strings.Count(log.String(), "level=ERROR") != 1 || n == 0 {
		t.Errorf("it logs %s", log.String())
	}

	// Another cause at the same place is another line.
	if p.Do(Record, func() { panic("another") }) {
		t.Error("it returned")
	}

	if n := strings.Count(log.String(), "level=ERROR"); n != 2 {
		t.Errorf("%d lines", n)
	}
}

func TestAnErrorIsPassedOn(t *testing.T) {
	failed := errors.New("failed")

	p := New(slog.New(slog.DiscardHandler))
	if err := p.Run(Page, func() error { return failed }); !errors.Is(err, failed) || p.Count(Page) != 0 {
		t.Errorf("%v, %d contained", err, p.Count(Page))
	}

	for _, place := range Places {
		p.Do(place, func() { panic(place) })

		if p.Count(place) != 1 {
			t.Errorf("%s is not counted", place)
		}
	}
}

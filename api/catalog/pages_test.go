package catalog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// However many pages are asked for, memory is bounded.
func TestWoAPagesAreBounded(t *testing.T) {
	ps := newPageCache()

	render := func() (*page, error) { return &page{body: make([]byte, 1<<20)}, nil }
	for i := range 100 {
		if _, err := ps.page(t.Context(), fmt.Sprint(i), func() uint64 { return 0 }, render); err != nil {
			t.Fatal(err)
		}
	}

	if ps.bytes > cacheMemory || len(ps.pages) != 31 {
		t.Errorf("%d pages with %d bytes are kept", len(ps.pages), ps.bytes)
	}

	if _, fresh := ps.cached("99"); !fresh {
		t.Error("the last one is forgotten")
	}
}

// While a page is rendered the one before it is served, but not once a registration in it has ended.
//
// Requirement: AD-024
func TestAPageThatEndedIsNotServed(t *testing.T) {
	ps := newPageCache()
	ps.rendering <- struct{}{}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	for ends, want := range map[time.Duration]error{time.Hour: nil, -time.Second: context.Canceled} {
		ps.keep("", &page{made: time.Now(), ends: time.Now().Add(ends)}, 0)

		if _, err := ps.page(ctx, "", nil, nil); !errors.Is(err, want) {
			t.Errorf("a page that ends in %v: %v, want %v", ends, err, want)
		}
	}
}

// A change while a page is rendered is in the next one.
//
// Requirement: WOA-033
func TestAChangeWhileAPageIsRendered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps, state, rendered := newPageCache(), uint64(0), 0

		for range 2 {
			_, err := ps.page(t.Context(), "", func() uint64 { return state }, func() (*page, error) {
				rendered++
				state = 1

				return &page{}, nil
			})
			if err != nil {
				t.Fatal(err)
			}

			time.Sleep(2 * minServed)
		}

		if rendered != 2 {
			t.Errorf("it is rendered %d times", rendered)
		}
	})
}

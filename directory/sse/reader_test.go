package sse_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory/sse"
)

// A stream is read as the HTML standard says, whatever ends its lines. Heartbeats advance the
// id, and what the end cuts off is dropped.
func TestEventsAreReadAsTheStandardSays(t *testing.T) {
	stream := "retry: 2000\n\n" +
		": note\r\nevent: added\r\nid: 1\r\ndata: a\r\ndata:b\r\n\r\n" +
		"id: 2\r\rdata\r\r" +
		"id: x\x00\ndata: c\n\n" +
		"data: cut"

	var got []string

	reader := sse.NewReader(strings.NewReader(stream), 100, "0")
	for {
		event, err := reader.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}

			break
		}

		got = append(got, fmt.Sprintf("%q %q %v %q %q", event.Name, event.ID, event.HasData, event.Data, event.Others))
	}

	want := []string{
		`"" "0" false "" "retry: 2000\n"`,
		`"added" "1" true "a\nb" ": note\nevent: added\nid: 1\n"`,
		`"" "2" false "" "id: 2\n"`,
		`"" "2" true "" ""`,
		`"" "2" true "c" "id: x\x00\n"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || reader.LastID() != "2" {
		t.Errorf("read\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// An event is bounded, in one line or in many.
func TestEventsAreBounded(t *testing.T) {
	for _, stream := range []string{"data: " + strings.Repeat("x", 200), strings.Repeat("data: x\n", 50)} {
		if _, err := sse.NewReader(strings.NewReader(stream+"\n\n"), 100, "").Next(); !errors.Is(err, sse.ErrTooLong) {
			t.Errorf("%.20q…: %v", stream, err)
		}
	}
}

// An event is returned as soon as it has ended, without another byte.
func TestEventsAreNotHeldBack(t *testing.T) {
	for _, end := range []string{"\n\n", "\r\r", "\r\n\r\n"} {
		from, to := io.Pipe()
		defer from.Close()
		go io.WriteString(to, "data: a"+end)

		if event, err := sse.NewReader(from, 100, "").Next(); err != nil || string(event.Data) != "a" {
			t.Errorf("%q: %v %v", end, event, err)
		}
	}
}

// One byte order mark may lead a stream; a second one is the first field's. Without it, nothing
// beyond an event's end is waited for.
//
// Requirement: FLD-015
func TestOneByteOrderMarkIsDropped(t *testing.T) {
	const mark = "\xef\xbb\xbf"

	for _, end := range []string{"\n", "\r", "\r\n"} {
		for stream, want := range map[string]string{
			mark + "data: a|data: b||":        "a\nb",
			mark + mark + "data: a|data: b||": "b",
			"data: " + mark + "a||":           mark + "a",
			"\xef\xbb:|data: a||":             "a",
		} {
			from, to := io.Pipe()
			go func() { _, _ = io.WriteString(to, strings.ReplaceAll(stream, "|", end)) }() // and it stays open

			event, err := sse.NewReader(from, 100, "").Next()
			from.Close()

			if err != nil || string(event.Data) != want {
				t.Errorf("%q with %q: %+v, %v", stream, end, event, err)
			}
		}
	}
}

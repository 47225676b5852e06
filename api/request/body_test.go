package request

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

// callOf returns a call with a body that declares its length, or doesn't.
func callOf(body io.Reader, declared bool, header ...string) *Call {
	r := httptest.NewRequest(http.MethodPost, "/", body)
	if !declared {
		r.ContentLength = -1
	}

	r.Header.Set("Content-Type", "application/json")

	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}

	return &Call{Request: r, MaxBody: 100 << 10}
}

// A body is read whole up to its bound, whether it declares its length or not.
//
// Requirement: AD-042
func TestABodyIsReadUpToItsBound(t *testing.T) {
	const piece, most = admission.FirstPiece, 100 << 10

	for _, size := range []int{0, 1, piece - 1, piece, piece + 1, 2 * piece, 2*piece + 1, 4*piece + 1, most, most + 1} {
		sent := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]

		for _, declared := range []bool{true, false} {
			got, err := ReadBody(httptest.NewRecorder(), callOf(bytes.NewReader(sent), declared))

			switch {
			case size > most:
				if problem.Explain(err).Err.Problem != directory.TooLarge {
					t.Errorf("%d bytes, declared %t: %v", size, declared, err)
				}
			case err != nil || !bytes.Equal(got, sent):
				t.Errorf("%d bytes, declared %t: read %d, %v", size, declared, len(got), err)
			}
		}
	}

	// A body whose length is over the bound is not read at all.
	unread := callOf(iotest.ErrReader(errors.New("read")), true)
	unread.ContentLength = most + 1

	if _, err := ReadBody(httptest.NewRecorder(), unread); problem.Explain(err).Err.Problem != directory.TooLarge {
		t.Errorf("over the bound: %v", err)
	}

	// A client that breaks its body off is at fault.
	for _, length := range []int64{-1, 10} {
		broken := callOf(io.MultiReader(strings.NewReader("{"), iotest.ErrReader(errors.New("reset"))), true)
		broken.ContentLength = length

		if _, err := ReadBody(httptest.NewRecorder(), broken); directory.ProblemOf(err) != directory.BadRequest {
			t.Errorf("of a length of %d, broken off: %v", length, err)
		}
	}
}

// Bodies are uncompressed JSON, by their header; an empty one may be declared as anything.
//
// Requirement: AD-046, AD-057
func TestABodyIsDeclaredAsJSON(t *testing.T) {
	for _, x := range []struct {
		mediaType, coding, body string
		refused                 bool
	}{
		{"application/json", "", "{}", false},
		{"application/json; charset=utf-8", "identity", "{}", false},
		{"application/ld+json", "Identity", "{}", false},
		{"text/json", "", "{}", true},
		{"application/jsonx", "", "{}", true},
		{"application/json; =", "", "{}", true},
		{"application/ld+json; =", "", "{}", true},
		{"", "", "{}", true},
		{"text/plain", "", "", false},
		{"application/json", "gzip", "{}", true},
		{"application/json", "gzip", "", true},
	} {
		var header []string
		if x.coding != "" {
			header = []string{"Content-Encoding", x.coding}
		}

		call := callOf(strings.NewReader(x.body), true, header...)
		call.Header.Set("Content-Type", x.mediaType)

		body, err := ReadBody(httptest.NewRecorder(), call)
		if refused := directory.ProblemOf(err) == problem.MediaType; refused != x.refused ||
			!refused && (err != nil || string(body) != x.body) {
			t.Errorf("%q %q as %q: %q, %v", x.coding, x.body, x.mediaType, body, err)
		}
	}
}

// A call waits for its slot when its body was read, by the work that this makes it.
func TestACallIsWorkedOnAfterItsBody(t *testing.T) {
	overload := admission.NewOverload(admission.OverloadConfig{
		Workers: 1, MemoryInUse: func() float64 { return .9 }, Shed: func(string) {},
		Logger: slog.New(slog.DiscardHandler),
	})

	for body, shed := range map[string]bool{"{}": true, "": false} { // short of memory, lookups are shed
		call := callOf(strings.NewReader(body), true)
		call.Slot = overload.Slot(admission.LookupWork, admission.RefreshWork)

		_, err := ReadBody(httptest.NewRecorder(), call)
		if (err != nil) != shed {
			t.Errorf("a body of %q: %v", body, err)
		}

		call.Slot.Release()
	}
}

// Unknown members are refused, but from other domains, which may run a later release. Both must be one JSON object.
//
// Requirement: FORM-004
func TestUnknownMembersAreForOtherDomains(t *testing.T) {
	for body, want := range map[string][2]directory.Problem{
		`{"known":1}`:             {"", ""},
		`{"known":1,"unknown":2}`: {directory.BadRequest, ""},
		`{"known":1,"known":2}`:   {directory.BadRequest, directory.BadRequest},
		`{"known":"x"}`:           {directory.BadRequest, directory.BadRequest},
		`[]`:                      {directory.BadRequest, directory.BadRequest},
	} {
		for i, read := range []func(http.ResponseWriter, *Call, any) error{ReadObject, ReadForeignObject} {
			var into struct {
				Known int `json:"known"`
			}

			err := read(httptest.NewRecorder(), callOf(strings.NewReader(body), true), &into)
			if directory.ProblemOf(err) != want[i] && (err == nil) != (want[i] == "") {
				t.Errorf("%s by %d: %v, want %q", body, i, err, want[i])
			}

			if err == nil && into.Known != 1 {
				t.Errorf("%s by %d: read %+v", body, i, into)
			}
		}
	}

	unread := callOf(strings.NewReader("{}"), true, "Content-Encoding", "gzip")
	for _, read := range []func(http.ResponseWriter, *Call, any) error{ReadObject, ReadForeignObject} {
		if err := read(httptest.NewRecorder(), unread, new(struct{})); directory.ProblemOf(err) != problem.MediaType {
			t.Errorf("compressed: %v", err)
		}
	}
}

// A call is found in its context, and there is none in others.
func TestACallIsFoundInItsContext(t *testing.T) {
	call := &Call{RequestID: "r"}
	if Of(With(t.Context(), call)) != call || Of(context.Background()) != nil {
		t.Error("another call is found")
	}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A feed answers each request for a stream in turn, in virtual time, and records the time
// and the last event id of each.
type feed struct {
	started time.Time
	answers []func(*http.Request) (*http.Response, error)

	mu    sync.Mutex // guards asked
	asked []string
}

func (f *feed) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	n := len(f.asked)
	f.asked = append(f.asked, fmt.Sprintf("%d %s", int(time.Since(f.started).Seconds()), r.Header.Get("Last-Event-ID")))
	f.mu.Unlock()

	return f.answers[min(n, len(f.answers)-1)](r)
}

// stream answers with events, and then breaks the connection or, without an error, stays
// silent until the client leaves.
func stream(events string, end error) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		body, w := io.Pipe()
		go func() {
			_, _ = io.WriteString(w, events)

			if end == nil {
				<-r.Context().Done()
				end = r.Context().Err()
			}

			_ = w.CloseWithError(end)
		}()

		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body,
			Request: r}, nil
	}
}

func refuses(status int, name string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		return (&desk{answer: func(*http.Request, time.Duration) (int, string) { return status, name }}).RoundTrip(r)
	}
}

// watchFor runs watch at the feed for a time.
func watchFor(t *testing.T, f *feed, long time.Duration, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	f.started = time.Now()
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(long, stop)

	var out, errs bytes.Buffer
	code = dialing(&out, &errs, "https://feed", f).run(ctx, append([]string{"watch"}, args...))

	return code, out.String(), errs.String()
}

const (
	someState = "event: reset\ndata: {\"why\":\"new\"}\n\nevent: added\ndata: {\"agent\":\"one\",\"href\":\"/ad/r/" +
		rid +
		"\",\"base\":\"https://one.example/a&b\\u001b\",\"provenance\":{\"origin_authority\":\"alpha.test\"}}\n\n" +
		"event: current\nid: a.1\ndata: {\"agents\":1}\n\n"
	someEnd = "event: removed\nid: a.2\ndata: {\"agent\":\"one\",\"href\":\"/ad/r/" + rid + "\",\"rid\":\"" + rid +
		"\",\"origin\":\"alpha.test\",\"why\":\"expired\"}\n\n"
)

var errCut = errors.New("connection reset by peer")

// A broken connection is resumed after the last event id, with growing pauses while that
// fails. There is one note, and an interrupt exits with 130.
//
// Requirement: OPS-005
func TestWatchResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{answers: []func(*http.Request) (*http.Response, error){
			stream(someState, errCut), refuses(503, "unavailable"), refuses(429, "rate-limited"),
			func(*http.Request) (*http.Response, error) { return nil, errCut },
			stream(someEnd+": nothing\nid: a.3\n\n", errCut),
			stream("event: end\ndata: {\"why\":\"stopping\"}\n\n", io.EOF), stream("", nil),
		}}

		code, out, notes := watchFor(t, f, 40*time.Second)
		if code != 130 {
			t.Errorf("exit code %d", code)
		}

		want := "EVENT\tAGENT\tORIGIN\tRID\tPROTOCOLS\tBASE (CLAIMED)\tEXPIRES\tWHY\n" +
			"added\tone\talpha.test\t" + rid + "\t\thttps://one.example/a&b\\x1b\t\t\n" +
			"removed\tone\talpha.test\t" + rid + "\t\t\t\texpired\n"
		if out != want {
			t.Errorf("got\n%swant\n%s", out, want)
		}

		if n := len(f.asked); n != 7 {
			t.Fatalf("asked %d times: %q", n, f.asked)
		}

		for i, behind := range []string{"", "a.1", "a.1", "a.1", "a.1", "a.3", "a.3"} {
			if !strings.HasSuffix(f.asked[i], " "+behind) {
				t.Errorf("request %d is behind %q, want %q", i, f.asked[i], behind)
			}
		}

		if got := strings.Count(notes, "Reconnected"); got != 3 || !strings.Contains(notes, "(stopping)") ||
			strings.Count(notes, "\n") > 11 {
			t.Errorf("notes:\n%s", notes)
		}
	})
}

// A connection ends by "unexpected EOF" when the caller's certificate expires; the next attempt
// has the cause, which is noted once.
//
// Requirement: FLD-020
func TestAWatchNamesTheCauseThatItMeetsAtTheNextConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		expired := func(*http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("the client certificate expired %d seconds ago", int(time.Since(began).Seconds()))
		}
		f := &feed{answers: []func(*http.Request) (*http.Response, error){
			stream(someState, io.ErrUnexpectedEOF), expired,
		}}

		_, _, notes := watchFor(t, f, 50*time.Second)
		if strings.Count(notes, "unexpected EOF") != 1 ||
			strings.Count(notes, "Cannot reconnect: no response from the directory: the client certificate expired") != 1 ||
			len(f.asked) < 5 {
			t.Errorf("%d attempts, notes:\n%s", len(f.asked), notes)
		}
	})
}

// A watch for the time of --timeout ends well, unless no directory answered.
func TestAWatchEndsAfterItsTime(t *testing.T) {
	hangs := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}

	for _, c := range []struct {
		answer func(*http.Request) (*http.Response, error)
		code   int
		note   string
	}{
		{stream(someState, nil), 0, "Stopped watching, because the time of --timeout is over."},
		{hangs, 6, "no answer from"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &feed{answers: []func(*http.Request) (*http.Response, error){c.answer}}

			code, _, notes := watchFor(t, f, time.Hour, "--timeout", "30s")
			if code != c.code || !strings.Contains(notes, c.note) {
				t.Errorf("exit code %d, want %d; %s", code, c.code, notes)
			}
		})
	}
}

// A refusal of the first request ends the command, because most often the command line is
// wrong. So does a later error that a retry can't cure.
func TestWatchEndsOnPermanentErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			answers []func(*http.Request) (*http.Response, error)
			code    int
			asked   int
		}{
			{[]func(*http.Request) (*http.Response, error){refuses(400, "bad-query")}, 2, 1},
			{[]func(*http.Request) (*http.Response, error){refuses(503, "unavailable")}, 6, 1},
			{[]func(*http.Request) (*http.Response, error){stream(someState, errCut), refuses(403, "forbidden")}, 4, 2},
		} {
			f := &feed{answers: c.answers}
			if code, _, notes := watchFor(t, f, time.Hour); code != c.code || len(f.asked) != c.asked {
				t.Errorf("exit code %d after %d requests, want %d after %d: %s", code, len(f.asked), c.code, c.asked,
					notes)
			}
		}
	})
}

// Data is printed unchanged, one object per line.
//
// Requirement: OPS-004
func TestWatchPrints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := someState[strings.Index(someState, `{"agent"`):strings.Index(someState, "\n\nevent: current")]
		for format, want := range map[string]string{
			"jsonl": `{"event":"added","data":` + data +
				"}\n{\"event\":\"current\",\"id\":\"a.1\",\"data\":{\"agents\":1}}\n",
			"json": `{"event":"added","data":` + data + "}\n{\"event\":\"current\"",
			"yaml": "---\nevent: \"removed\"\nid: \"a.2\"\n",
			"wide": "REGISTRANT",
		} {
			f := &feed{answers: []func(*http.Request) (*http.Response, error){stream(someState+someEnd, nil)}}
			if code, out, notes := watchFor(t, f, time.Second, "-o", format); code != 130 ||
				!strings.Contains(out, want) {
				t.Errorf("%s: exit code %d\n%s%s\nwant %s", format, code, out, notes, want)
			}
		}
	})
}

// An audit log that is followed for the time of --timeout ends well.
func TestFollowingAnAuditLogEndsAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := func(r *http.Request) (*http.Response, error) {
			body := io.NopCloser(strings.NewReader(`{"node":"` + nodeID + `","lines":[],"more":false}`))
			header := http.Header{"Content-Type": {"application/json"}}

			return &http.Response{StatusCode: http.StatusOK, Header: header, Body: body, Request: r}, nil
		}
		f := &feed{started: time.Now(), answers: []func(*http.Request) (*http.Response, error){page, stream("", nil)}}

		var out, errs bytes.Buffer

		args := []string{"audit", "--follow", "--timeout", "30s"}
		if code := dialing(&out, &errs, "https://feed", f).run(t.Context(), args); code != 0 ||
			!strings.Contains(errs.String(), "the time of --timeout is over") {
			t.Errorf("exit code %d: %s", code, errs.String())
		}
	})
}

// A followed node that can't be reached any more is named, once for each cause.
//
// Requirement: FLD-020
func TestFollowingAnAuditLogNamesALostNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := func(r *http.Request) (*http.Response, error) {
			body := io.NopCloser(strings.NewReader(`{"node":"` + nodeID + `","lines":[],"more":false}`))
			header := http.Header{"Content-Type": {"application/json"}}

			return &http.Response{StatusCode: http.StatusOK, Header: header, Body: body, Request: r}, nil
		}
		f := &feed{started: time.Now(), answers: []func(*http.Request) (*http.Response, error){
			page, stream("", errCut), refuses(503, "unavailable"), refuses(403, "forbidden"),
		}}

		var out, errs bytes.Buffer

		code := dialing(&out, &errs, "https://feed", f).run(t.Context(), []string{"audit", "--follow"})
		if notes := errs.String(); code != 4 || strings.Count(notes, nodeID+": connection lost: ") != 2 ||
			!strings.Contains(notes, "unavailable; retrying") {
			t.Errorf("exit code %d: %s", code, notes)
		}
	})
}

// A watch that begins again counts anew.
func TestAWatchCountsAfterAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{answers: []func(*http.Request) (*http.Response, error){stream(someState, errCut),
			stream(someState, nil)}}

		if _, _, notes := watchFor(t, f, 40*time.Second); strings.Count(notes, "1 now") != 2 {
			t.Errorf("the notes are %q", notes)
		}
	})
}

// A failing writer is an output that was closed.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A watch whose output is closed ends: to connect anew wouldn't help.
//
// Requirement: OPS-005
func TestAWatchEndsWithItsOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()

		f := &feed{started: time.Now(), answers: []func(*http.Request) (*http.Response, error){stream(someState, nil)}}

		code := dialing(failingWriter{}, io.Discard, "https://feed", f).run(ctx, []string{"watch"})
		if code == 0 || ctx.Err() != nil || len(f.asked) != 1 {
			t.Errorf("exit code %d after %d connections, %v", code, len(f.asked), ctx.Err())
		}
	})
}

package domain

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// written is a channel of lines.
type written chan string

// Write implements io.Writer.
func (w written) Write(line []byte) (int, error) {
	w <- string(line)
	return len(line), nil
}

// A server that answers more than it was asked has net/http log its bytes. Such a line is one of level debug in
// the node's log.
func TestAServerCausesNoLinesButOfDebug(t *testing.T) {
	former := slog.Default()
	defer slog.SetDefault(former)
	defer slog.SetLogLoggerLevel(slog.LevelInfo)

	lines := make(written, 8)
	setDefaultLogger(slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelDebug})))

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}

		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\nmore than the answer")
		_ = conn.Close()
	}))
	defer server.Close()

	response, err := server.Client().Get(server.URL)
	must(t, err)

	_ = response.Body.Close()

	select {
	case line := <-lines:
		if !strings.Contains(line, "level=DEBUG") || !strings.Contains(line, "more than the answer") {
			t.Errorf("the line is %q", line)
		}
	case <-time.After(time.Minute):
		t.Error("the line isn't in the log")
	}
}

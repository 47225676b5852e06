package domain

import (
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// A node that hangs is reported by silence: its watchdog isn't answered any more.
//
// Requirement: OPS-028
func TestANodeThatHangsDoesNotAnswerTheWatchdog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")

	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(t, err)
	defer socket.Close()

	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "30000")

	asked, release := make(chan struct{}), make(chan struct{})
	defer close(release)

	s := &supervision{log: slog.New(slog.DiscardHandler), alive: func() {
		select {
		case asked <- struct{}{}:
		case <-release: // hangs until the end of the test
		}
	}}
	go s.watchdog(t.Context())

	answer := make([]byte, 64)
	for range 2 {
		<-asked

		if n, err := socket.Read(answer); err != nil || string(answer[:n]) != "WATCHDOG=1" {
			t.Fatalf("a live node says %q, %v", answer[:n], err)
		}
	}

	_ = socket.SetReadDeadline(time.Now().Add(300 * time.Millisecond)) // ten watchdog periods
	if n, err := socket.Read(answer); err == nil {
		t.Errorf("a node that hangs says %q", answer[:n])
	}
}

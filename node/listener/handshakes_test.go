package listener

import (
	"crypto/tls"
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

// Handshakes wait for each other, requests on open connections don't wait for them, and a client that stops in the
// middle of its handshake holds no slot.
//
// Requirement: OPS-020
func TestHandshakesWaitForEachOther(t *testing.T) {
	b := besiege(t)
	slots := b.limiter.handshakes

	open, err := b.ask("127.0.1.1", "/agent/ada", "http/1.1")
	must(t, err)

	for range cap(slots) {
		slots <- struct{}{}
	}

	// The first bytes of a record, of which more would have to come.
	silent := b.dial("127.0.2.1")
	_, err = silent.Write([]byte{22, 3, 1, 0})
	must(t, err)

	came := make(chan error, 1)
	newcomer := b.dial("127.0.3.1")

	go func() {
		came <- tls.Client(newcomer, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context())
	}()

	answer := make([]byte, 1024)

	for range 10 {
		_, err = io.WriteString(open, "GET / HTTP/1.1\r\nHost: ad.alpha.test\r\n\r\n")
		must(t, err)
		_, err = open.Read(answer)
		must(t, err)

		select {
		case err := <-came:
			t.Fatalf("a handshake ended without a slot: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}

	for range cap(slots) {
		<-slots
	}

	must(t, <-came)

	for range cap(slots) {
		select {
		case slots <- struct{}{}:
		case <-time.After(time.Minute):
			t.Fatal("a client that is silent holds a slot")
		}
	}

	_ = silent.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := silent.Read(answer); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the silent client's slot came back with the end of its connection: %v", err)
	}
}

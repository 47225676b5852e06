package mirror

import (
	"crypto/ed25519"
	"io/fs"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/directorytest"
)

// While the disk hangs in the write of a checkpoint, lookups and the status of peers are answered from the copy before.
func TestADiskThatHangsStopsNoReader(t *testing.T) {
	beta := spiffeid.RequireTrustDomainFromString("beta.test")
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

	note, err := checkpoint.Parse(checkpoint.Sign(checkpoint.Checkpoint{Origin: "beta.test/roster/7"}, key))
	directorytest.Must(t, err)

	m := Open(Config{Dir: t.TempDir()})

	hanging, release := make(chan struct{}), make(chan struct{})
	m.write = func(string, []byte, fs.FileMode) error {
		close(hanging)
		<-release

		return nil
	}

	kept := make(chan error)
	go func() { kept <- m.keep(m.of(beta), beta, note) }()

	<-hanging

	read := make(chan bool)
	go func() {
		m.Age(beta)
		m.Differs(beta)
		m.Includes(beta, 0, [32]byte{})

		_, _, err := m.Prove(beta, 7, 0)
		read <- err != nil && m.Witnesses(beta, 0) == nil && m.Note(beta) == nil
	}()

	select {
	case former := <-read:
		if !former {
			t.Error("a checkpoint is shown that is not on disk")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("readers wait for the disk")
	}

	close(release)
	directorytest.Must(t, <-kept)

	if m.Note(beta) != note {
		t.Error("the checkpoint is not kept")
	}
}

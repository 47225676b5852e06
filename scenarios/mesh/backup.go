package mesh

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node"
)

// A Backup is a domain's backup, with the registrations at its time.
type Backup struct {
	Taken time.Time

	domain string
	file   []byte
	agents []*Agent
}

// Backup saves a domain's state while it runs, by its operator's command.
func (m *Mesh) Backup(name string) *Backup {
	m.T.Helper()
	backup := &Backup{Taken: time.Now(), domain: name}
	backup.agents = m.model.registered(name)

	var file bytes.Buffer
	ctx, cancel := request()
	defer cancel()
	m.must(m.Domain(name).living().client(operator).Operator().SaveSnapshot(ctx, &file))
	backup.file = file.Bytes()
	m.Note("a backup of %s is taken", name)

	return backup
}

// Restore restores a backup at its domain, once, and accepts what it costs or not. After an
// error the outcome is unknown. Safe for concurrent use, except with another Restore of the same
// domain.
func (m *Mesh) Restore(backup *Backup, accept bool) (*apiclient.Restored, error) {
	m.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	options := apiclient.RestoreOptions{Reason: "a story"}

	if accept {
		info, err := node.InspectBackup(bytes.NewReader(backup.file))
		m.must(err)

		options.AcceptLossSince, options.NewEpoch = info.Position.String(), true
	}

	done, _, err := m.Domain(backup.domain).living().client(operator).
		Operator().RestoreSnapshot(ctx, func() io.Reader { return bytes.NewReader(backup.file) },
		int64(len(backup.file)), options)

	return done, m.noted(err, "%s is restored from its backup", backup.domain)
}

// Overtaken records that the domain is at a backup again: registrations after it are
// lost, and those removed after it may be shown again, at home only (rule P2).
func (m *Mesh) Overtaken(b *Backup) { m.model.restore(b.domain, b.agents) }

// Shows returns nil when a node shows these agents of a domain and no others.
func (m *Mesh) Shows(n *Node, domain string, agents ...*Agent) error {
	all, err := m.Lookup(n)
	if err != nil {
		return err
	}

	of := 0
	for _, r := range all {
		if r.Provenance.Authority == domain {
			of++
		}
	}

	for _, a := range agents {
		if _, ok := all[a.RID]; !ok {
			return fmt.Errorf("%s does not show %s", n.Name, a.Name)
		}
	}

	if of != len(agents) {
		return fmt.Errorf("%s shows %d agents of %s and not %d", n.Name, of, domain, len(agents))
	}

	return nil
}

package api

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

// Backups saves a domain's state and restores it. Its errors are *directory.Error.
type Backups interface {
	// Save writes a backup that has all that was acknowledged before the call.
	Save(ctx context.Context, w io.Writer) error
	// Restore puts a backup in the place of the domain's registrations. It is
	// refused where the backup is older than the domain or of a later epoch, unless force is set.
	Restore(ctx context.Context, backup io.Reader, force bool, reason string) (wire.Restored, error)
}

// saveSnapshot answers GET /v1/operator/snapshot. What is cut off ends in a torn
// stream, and the file's own checksum does not hold.
func (s *Server) saveSnapshot(w http.ResponseWriter, c *call) error {
	out := &patient{w: w, rc: http.NewResponseController(w), file: "roster-" + s.cfg.Domain.Name() + ".backup"}
	if c.Method == http.MethodHead {
		out.begin()
		return nil
	}
	err := s.cfg.Backups.Save(c.Context(), out)
	switch {
	case err == nil:
		s.log.Info("snapshot saved", "request_id", c.requestID, "caller", c.id.String())
	case out.begun:
		s.log.Warn("a snapshot was cut off", "request_id", c.requestID, "err", err)
		panic(http.ErrAbortHandler) // so that nobody takes it for whole
	}
	return err
}

// patience is how long a client may take for each piece of a backup.
const patience = 30 * time.Second

// patient moves the connection's deadlines along with what crosses it.
type patient struct {
	w     http.ResponseWriter
	r     io.Reader
	rc    *http.ResponseController
	file  string
	begun bool
}

func (p *patient) begin() {
	h := p.w.Header()
	h.Set("Content-Type", wire.MediaBackup)
	h.Set("Content-Disposition", `attachment; filename="`+p.file+`"`)
	h.Set("Cache-Control", "no-store")
	p.w.WriteHeader(http.StatusOK)
	p.begun = true
}

func (p *patient) Write(b []byte) (int, error) {
	if !p.begun {
		p.begin()
	}
	_ = p.rc.SetWriteDeadline(time.Now().Add(patience)) // where the connection has deadlines
	return p.w.Write(b)
}

func (p *patient) Read(b []byte) (int, error) {
	_ = p.rc.SetReadDeadline(time.Now().Add(patience))
	return p.r.Read(b)
}

// restoreSnapshot answers POST /v1/operator/snapshot, whose body is a backup.
func (s *Server) restoreSnapshot(w http.ResponseWriter, c *call) error {
	if got := c.Header.Get("Content-Type"); got != wire.MediaBackup {
		return directory.Refuse(problem.MediaType, "The body's Content-Type is %.100q; send a backup as %s.", got, wire.MediaBackup)
	}
	force, err := c.params.one("force")
	if err != nil {
		return err
	}
	reason, err := c.params.one("reason")
	if err != nil {
		return err
	}
	in := &patient{r: c.Body, rc: http.NewResponseController(w)}
	done, err := s.cfg.Backups.Restore(c.Context(), in, force == "true", reason)
	if err != nil {
		return err
	}
	_ = in.rc.SetReadDeadline(time.Time{})
	s.log.Warn("the domain was restored", "request_id", c.requestID, "caller", c.id.String(), "backup", done.Backup, "before", done.Before, "now", done.Now)
	return sendStatus(w, c, done)
}

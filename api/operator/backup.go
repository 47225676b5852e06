package operator

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

// BackupStore saves a domain's state and restores it. Its errors are *directory.Error.
type BackupStore interface {
	// Save writes a backup of everything that was acknowledged before the call.
	Save(ctx context.Context, w io.Writer) error
	// Restore replaces the domain's registrations by a backup. It is refused if it has
	// consequences that the options don't accept.
	Restore(ctx context.Context, backup io.Reader, options RestoreOptions) (wire.Restored, error)
}

// RestoreOptions say which consequences of a restore its operator accepts.
type RestoreOptions struct {
	AcceptLossSince string // the backup's position, of which changes since are lost
	NewEpoch        bool   // peers drop registrations until their owners refresh them
	Reason          string // for the ledger
}

// Backups answers the routes of snapshots.
type Backups struct {
	Domain spiffeid.TrustDomain
	Store  BackupStore
	Logger *slog.Logger
}

// Save answers GET /v1/operator/snapshot. If it is cut off, the stream breaks, and the
// file's own checksum is wrong.
func (h *Backups) Save(w http.ResponseWriter, call *request.Call) error {
	file := "roster-" + h.Domain.Name() + ".backup"

	out := &backupWriter{w: w, rc: http.NewResponseController(w), file: file}
	if call.Method == http.MethodHead {
		out.begin()
		return nil
	}

	err := h.Store.Save(call.Context(), out)
	switch {
	case err == nil:
		h.Logger.Info("snapshot saved", "request_id", call.RequestID, "caller", call.Identity.String())
	case out.begun:
		h.Logger.Warn("a snapshot was cut off", "request_id", call.RequestID, "err", err)

		// The client must not take the file for complete.
		panic(http.ErrAbortHandler)
	}

	return err
}

// Restore answers POST /v1/operator/snapshot, whose body is a backup.
func (h *Backups) Restore(w http.ResponseWriter, call *request.Call) error {
	if got := call.Header.Get("Content-Type"); got != wire.MediaBackup {
		return directory.Refuse(problem.MediaType, "Content-Type %.100q is not supported. Send a backup as %s", got,
			wire.MediaBackup)
	}

	options, err := restoreOptions(call)
	if err != nil {
		return err
	}

	in := &backupReader{r: call.Body, rc: http.NewResponseController(w)}

	done, err := h.Store.Restore(call.Context(), in, options)
	if err != nil {
		return err
	}

	// The deadline of the last piece must not end the next request of the connection.
	_ = in.rc.SetReadDeadline(time.Time{})

	h.Logger.Warn("the domain was restored", "request_id", call.RequestID, "caller", call.Identity.String(),
		"backup", done.Backup, "before", done.Before, "now", done.Now)

	return response.Status(w, call, done)
}

// restoreOptions reads the parameters of a restore.
func restoreOptions(call *request.Call) (options RestoreOptions, err error) {
	if options.AcceptLossSince, err = call.Params.One("accept_loss_since"); err != nil {
		return options, err
	}

	accepts, err := call.Params.One("new_epoch")
	if err != nil {
		return options, err
	}

	options.NewEpoch = accepts == "true"
	options.Reason, err = call.Params.One("reason")

	return options, err
}

// pieceTime is how long a client may take for each piece of a backup.
const pieceTime = 30 * time.Second

// A backupWriter sends a backup, with a deadline for each piece.
type backupWriter struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	file  string
	begun bool
}

func (b *backupWriter) begin() {
	h := b.w.Header()
	h.Set("Content-Type", wire.MediaBackup)
	h.Set("Content-Disposition", `attachment; filename="`+b.file+`"`)
	response.NoStore(b.w)
	b.w.WriteHeader(http.StatusOK)
	b.begun = true
}

// Write implements io.Writer.
func (b *backupWriter) Write(data []byte) (int, error) {
	if !b.begun {
		b.begin()
	}

	_ = b.rc.SetWriteDeadline(time.Now().Add(pieceTime)) // if the connection has deadlines

	return b.w.Write(data)
}

// A backupReader receives a backup, with a deadline for each piece.
type backupReader struct {
	r  io.Reader
	rc *http.ResponseController
}

// Read implements io.Reader.
func (b *backupReader) Read(p []byte) (int, error) {
	_ = b.rc.SetReadDeadline(time.Now().Add(pieceTime))
	return b.r.Read(p)
}

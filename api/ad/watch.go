package ad

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// heartbeat is the longest time in which nothing is sent, so that both ends, and proxies
// between them, know that the other end is there.
const heartbeat = wire.Heartbeat

// retryTime is how long a browser is asked to wait before it reconnects.
const retryTime = 2 * time.Second

// WatchParams are the parameters of a watch: a lookup's without its paging.
var WatchParams = []string{
	"agent", "protocol", "cap_name", "cap_type", "tag", "origin", "scope", "status", "language", "brief", "consistency",
}

// A WatchPolicy tells when decisions change.
type WatchPolicy interface {
	// Generation counts changes of decisions: it changes right after they do.
	Generation() uint64
	// Changed is closed when Generation differs from its value at the call.
	Changed() <-chan struct{}
}

// WatchConfig configures a Watcher.
type WatchConfig struct {
	Reader  *registration.Reader
	Policy  WatchPolicy
	Limiter *admission.Limiter
	// Heard is the time since the domain's leader was last heard, and MaxStale the longest
	// that default reads allow.
	Heard    func() time.Duration
	MaxStale time.Duration
	// ConsumeProof uses up the proof of a request that isn't a change; see api.Config.
	ConsumeProof func(ctx context.Context, proof directory.Hash, until int64) error
	Logger       *slog.Logger
}

// A Watcher answers GET /ad/watch.
type Watcher struct {
	cfg WatchConfig

	stopping context.Context // ends when the streams are to end
	stop     context.CancelFunc
}

// NewWatcher returns a Watcher without streams.
func NewWatcher(cfg WatchConfig) *Watcher {
	watcher := &Watcher{cfg: cfg}
	watcher.stopping, watcher.stop = context.WithCancel(context.Background())

	return watcher
}

// Drain ends all streams, which would go on for ever otherwise: a node that stops calls it
// first.
func (wt *Watcher) Drain() { wt.stop() }

// Watch answers GET /ad/watch: the answer of GET /ad/l for the same filters, and its
// changes from then on, as server-sent events (the HTML standard, 9.2).
//
// The data of added and updated is a lookup's item. That of removed has href, agent, rid,
// origin and why: removed, expired (by its origin's clock, at its deadline) or hidden (it
// exists, but no longer matches or may no longer be seen). Applied in order to an empty
// set, they make it the answer of a lookup. A new deadline alone is no event, so refreshes
// are none: expires_at is as of the item's last event, and an item ends with removed, not
// before.
//
// A stream begins with reset: the client forgets its items and its last id; the present
// items follow as added, up to current. From there on every event has an id, and so has a
// heartbeat. A client that sends the last one as Last-Event-ID resumes after it, without
// a reset, a gap or a repetition: at the same node while that runs, for the same filters
// and the same caller, and while the node still has the changes since: the last 16384,
// and those of five minutes after the last watcher left. Otherwise it gets reset and the
// state. The id names its node, so it is never taken for another node's. If policy decides
// anew what the caller may see, the stream starts over with reset.
//
// The last event of a stream that the directory ends is end, with the reason as why.
func (wt *Watcher) Watch(w http.ResponseWriter, call *request.Call) error {
	st, err := wt.newStream(w, call)
	if err != nil {
		return err
	}

	if wt.stopping.Err() != nil {
		return directory.Refuse(directory.Unavailable, "this node is stopping. Watch at another node")
	}

	// A proof holds for a minute, but the stream for as long as the token.
	if !call.Credential.Proof.IsZero() {
		if err := wt.cfg.ConsumeProof(call.Context(), call.Credential.Proof, call.Credential.ProofUntil); err != nil {
			return err
		}
	}

	ctx, cancel := wt.context(call)
	defer cancel()
	st.query.Charge = wt.cfg.Limiter.SpendSlowly(ctx, call.Caller(), admission.Reads)
	st.open(st.mark)

	// A restart replaces the watcher, so the last one is closed.
	defer func() { st.watcher.Close() }()

	w.Header().Set("Content-Type", wire.MediaEvents)
	w.Header().Set("X-Accel-Buffering", "no") // some proxies buffer streams
	st.buf = fmt.Appendf(nil, "retry: %d\n\n", retryTime.Milliseconds())
	err = st.run(ctx)
	wt.cfg.Logger.Debug("watch ended", "request_id", call.RequestID, "caller", call.Identity.String(), "err", err)

	return nil // the client got the reason, or is gone
}

// context ends with the request, with the credential that came with it, and when the node
// stops.
func (wt *Watcher) context(call *request.Call) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(call.Context())

	cancel := func() {}
	if until := call.Credential.Until; !until.IsZero() {
		ctx, cancel = context.WithDeadlineCause(ctx, until, errCredential)
	}

	// Without detach, each stream would stay in memory until the node stops.
	detach := context.AfterFunc(wt.stopping, func() { end(errStopping) })

	return ctx, func() {
		detach()
		cancel()
		end(nil)
	}
}

// newStream reads the filters of a request, and where it resumes.
func (wt *Watcher) newStream(w http.ResponseWriter, call *request.Call) (*stream, error) {
	values, err := call.Params.Decode(WatchParams)
	if err != nil {
		return nil, err
	}

	st := &stream{
		cfg:    &wt.cfg,
		w:      w,
		rc:     http.NewResponseController(w),
		opt:    view.Options{Registrant: !call.Anonymous()},
		stale:  values.Get("consistency") == "stale",
		show:   wt.cfg.Reader.Guard.Viewer(call),
		filter: call.Identity.String() + "\n" + values.Encode(),
		why:    "new",
	}
	if st.query, err = index.ParseQuery(values); err != nil {
		return nil, err
	}

	if st.opt.Brief, err = request.Brief(values["brief"]); err != nil {
		return nil, err
	}

	// The version of policy is noted before any item is read, so a later change restarts the stream.
	st.notePolicy()

	last := call.Header.Get("Last-Event-ID")
	if last != "" {
		st.why = "lost"
	}

	if mark, suffix, ok := cutLast(last, "."); ok && suffix == st.suffix {
		st.mark = index.ParseResumeToken(mark)
	}

	return st, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}

	return s[:i], s[i+len(sep):], true
}

// The reasons for which the directory ends a stream: why of its last event. The client
// reconnects with Last-Event-ID; for credential with a new one, for stopping and stale at
// another node if it can.
const (
	EndSlow       = "slow"       // the client takes events more slowly than changes happen
	EndCredential = "credential" // the client's credential has expired
	EndStopping   = "stopping"   // the node stops
	EndStale      = "stale"      // the leader was not heard for longer than default reads allow
)

var (
	errSlow       = errors.New(EndSlow)
	errCredential = errors.New(EndCredential)
	errStopping   = errors.New(EndStopping)
	errStale      = errors.New(EndStale)
)

// fingerprint tells the filters and the policy of a stream apart from others'.
func fingerprint(generation uint64, filter string) string {
	return response.Fingerprint(fmt.Appendf(nil, "%d\n%s", generation, filter))
}

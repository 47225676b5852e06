package federation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// How long a node waits for another's answer. Records that come with a page are
// asked for before it is applied, so that a change is visible at once and whole;
// they never hold it up for longer than prefetchTime.
const (
	answerTime   = 10 * time.Second
	recordsTime  = 30 * time.Second
	prefetchTime = 2 * time.Second
)

var (
	errGap      = errors.New("the pages don't connect to what is here")
	errNoNews   = errors.New("the node answers what is known already")
	errNoNode   = errors.New("the peering names no address")
	errNotFound = errors.New("the node has nothing of that origin")
	errDenied   = errors.New("the node refuses")
)

// get asks another node and returns its answer, "" for 204.
func (m *Mesh) get(ctx context.Context, n node, path string, q url.Values, limit int) (string, error) {
	text, _, err := m.getWithHeader(ctx, n, path, q, limit)
	return text, err
}

func (m *Mesh) getWithHeader(ctx context.Context, n node, path string, q url.Values, limit int) (string, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.base+path+"?"+q.Encode(), nil)
	if err != nil {
		return "", nil, fmt.Errorf("federation: %w", err)
	}
	req.Header.Set("Accept-Encoding", "identity") // what is unpacked may be endless before it has a byte
	res, err := m.cfg.Client(n.domain).Do(req)
	if err != nil {
		return "", nil, fmt.Errorf("ask %s: %w", n.base, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, int64(limit)+1))
	m.traffic.add(n.domain, len(body), 0)
	switch {
	case err != nil:
		return "", nil, fmt.Errorf("ask %s: %w", n.base, err)
	case res.StatusCode == http.StatusNoContent:
		return "", res.Header, nil
	case res.StatusCode == http.StatusNotFound:
		return "", nil, fmt.Errorf("ask %s: %w", n.base, errNotFound)
	case res.StatusCode == http.StatusForbidden:
		return "", nil, fmt.Errorf("%w: %s says %s", errDenied, n.base, said(body))
	case res.StatusCode != http.StatusOK:
		return "", nil, fmt.Errorf("%s answers %s: %s", n.base, answered(res), said(body))
	}
	return string(body), res.Header, nil // one byte over the limit is for the gate to refuse
}

// answered is the status of an answer, in this release's words: HTTP/1 has the other side's,
// whatever bytes it sends.
func answered(res *http.Response) string {
	return strings.TrimSpace(fmt.Sprint(res.StatusCode, " ", http.StatusText(res.StatusCode)))
}

// said is what a refusal's body says, fit for an operator's eyes: the detail of a problem
// (RFC 9457), else what there is. Its bytes are another's, so it is quoted.
func said(body []byte) string {
	var p struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(body, &p) == nil && p.Detail != "" {
		return fmt.Sprintf("%.200q", p.Detail)
	}
	return fmt.Sprintf("%.200q", body)
}

// getPage asks for one page of an origin's stream, "" for none.
func (m *Mesh) getPage(ctx context.Context, n node, origin spiffeid.TrustDomain, aud directory.Audience, since uint64) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return m.get(ctx, n, pathPages, pageQuery(origin, aud, since), MaxPage)
}

func pageQuery(origin spiffeid.TrustDomain, aud directory.Audience, since uint64) url.Values {
	return url.Values{"origin": {origin.Name()}, "aud": {aud.String()}, "since": {strconv.FormatUint(since, 10)}}
}

// A forked error says that an origin issued two key documents of one epoch and
// seq, and has both (evidence E3).
type forked interface {
	error
	Forked() (held, other string)
}

// refreshKeys pulls an origin's key document from a node that has it. A document
// that doesn't hold changes nothing.
func (m *Mesh) refreshKeys(ctx context.Context, o *origin, n node) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	text, err := m.get(ctx, n, pathKeys, url.Values{"origin": {o.domain.Name()}}, maxKeys)
	if err != nil {
		return err
	}
	err = m.cfg.Panics.Run(contain.Keys, func() error { return m.adopt(o, text, n.domain == o.domain) })
	var two forked
	if errors.As(err, &two) {
		held, other := two.Forked()
		m.accuse(o, nil, []string{held, other})
	}
	if err != nil {
		return fmt.Errorf("key document of %s: %w", o.domain.Name(), err)
	}
	m.recall(o)
	return nil
}

// obey drops what an origin told the mesh, where its key document lists this domain
// no longer: it isn't to be had here any more (MESH-025). The origin's time and its
// key document stay, and what it told this domain alone. o.change is held.
func (m *Mesh) obey(o *origin) error {
	doc, _, ok := m.cfg.Keys.Keys(o.domain)

	o.mu.Lock()
	o.unlisted = ok && !slices.Contains(doc.Mesh, m.cfg.Domain)
	o.mu.Unlock()

	if !o.unlisted || o.cur == nil && o.next == nil {
		return nil
	}

	if err := m.store.dropStreams(o.domain, directory.Mesh); err != nil {
		return err
	}

	o.replace(&o.feed, nil)
	o.mu.Lock()
	o.head, o.headText = nil, ""
	o.mu.Unlock()

	m.cfg.Logger.Warn("an origin lists this domain no longer; what it told is dropped", "origin", o.domain.Name())
	m.moved()
	m.hide(o, &o.feed, func(*directory.Entry) bool { return true })

	return nil
}

// askHead asks a node for an origin's head, and for the key document where the
// head names another one than is known.
func (m *Mesh) askHead(ctx context.Context, o *origin, n node) error {
	timed, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	text, err := m.get(timed, n, pathHeads, url.Values{"origin": {o.domain.Name()}}, gossip.MaxHead)
	if errors.Is(err, errDenied) && n.domain == o.domain {
		if failed := m.refreshKeys(ctx, o, n); failed != nil { // which says whether this domain is still listed
			return failed
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.unlisted {
			return errUnlisted
		}
		return err
	}
	if err != nil {
		return err
	}
	return m.takeHead(ctx, sender{domain: n.domain}, n, text)
}

func (m *Mesh) takeHead(ctx context.Context, from sender, giver node, text string) error {
	return m.cfg.Panics.Run(contain.Head, func() error { return m.judgeHead(ctx, from, giver, text) })
}

func (m *Mesh) judgeHead(ctx context.Context, from sender, giver node, text string) error {
	var h *directory.Head
	o, err := m.withKeys(ctx, from, giver, func() (o *origin, err error) {
		o, h, err = m.openHead(from, text)
		return o, err
	})
	if err != nil {
		return m.refused(from, text, err)
	}
	if err := m.acceptHead(o, h, text); err != nil {
		return err
	}
	if doc, _, ok := m.cfg.Keys.Keys(o.domain); (!ok || directory.HashOf(doc.Payload()) != h.Keys) && o.mayRefresh(from) {
		if err := m.refreshKeys(ctx, o, giver); err != nil { // pages may be by keys that are known, as the head is
			o.complain(err)
		}
	}
	return nil
}

// acceptHead keeps a newer head. A lower one is ignored and counted: being behind
// is no crime. While the disk doesn't answer, what a head says is known all the same,
// unless it begins an epoch: it tells how far this node is behind.
func (m *Mesh) acceptHead(o *origin, h *directory.Head, text string) error {
	if err := o.change.lock(m.store); err != nil {
		o.knowHead(h, text)
		return err
	}
	defer o.change.unlock()

	if o.hasEnded() {
		return errPeeringEnd
	}
	if o.hasNewer(h) {
		m.counted(o, CodeOld)
		return nil
	}

	o.hear()
	if err := m.beginEpoch(o, h); err != nil {
		return err
	}

	o.knowHead(h, text)
	if err := m.store.setOrigin(o.domain, o.saved(o.index.Clock.Now())); err != nil {
		return err
	}

	if st := o.newest(); st.id.epoch == h.Epoch && st.state.Watermark >= h.Tip && h.At >= st.anew { // an origin that announces nothing, yet or any more
		if err := m.atTip(o, &o.feed, st); err != nil {
			return err
		}
	}
	m.moved()

	return nil
}

// hasNewer reports whether a head says nothing that isn't known.
func (o *origin) hasNewer(h *directory.Head) bool {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.head != nil && !newerHead(h, o.head)
}

func newerHead(h, last *directory.Head) bool {
	switch {
	case h.Epoch != last.Epoch:
		return h.Epoch > last.Epoch
	case h.At != last.At:
		return h.At > last.At
	}

	return h.IssuedAt > last.IssuedAt
}

// beginEpoch begins streams of the epoch that a head names, if it is a new one. o.change
// is held.
func (m *Mesh) beginEpoch(o *origin, h *directory.Head) error {
	if f := &o.private; f.cur != nil { // a new epoch is one of all streams
		if _, err := m.streamOf(o, f, streamID{h.Issuer, f.aud, h.Epoch}); err != nil {
			return err
		}
	}

	_, err := m.streamOf(o, &o.feed, streamID{h.Issuer, directory.Mesh, h.Epoch})
	return err
}

// knowHead notes what a newer head of an epoch that has begun here says.
func (o *origin) knowHead(h *directory.Head, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()

	st := o.feed.existing(h.Epoch)
	if o.ended || st == nil && h.Epoch >= o.newest().id.epoch || o.head != nil && !newerHead(h, o.head) {
		return
	}

	if o.head != nil && h.Epoch > o.head.Epoch {
		o.tip = 0
	}

	o.head, o.headText, o.headIs = h, text, time.Unix(h.IssuedAt, 0)
	o.reached.Store(nil)
	o.tip = max(o.tip, h.Tip)
	o.heard, o.lastErr = time.Now(), ""
	o.unread.head = nil

	if st != nil && st.state.Watermark >= h.Tip {
		o.level = time.Now()
	}
}

// behind reports whether the origin is known to have announced more than is here.
func (o *origin) behind() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.newest().state.Watermark < o.tip
}

// pullInTurn is pullAll, one of this node's loops after the other.
func (m *Mesh) pullInTurn(ctx context.Context, o *origin, f *feed, n node, s *stint) error {
	select {
	case f.busy <- struct{}{}:
		defer func() { <-f.busy }()
		return m.pullAll(ctx, o, f, n, s)
	case <-s.asking.Done():
		return context.Cause(s.asking)
	}
}

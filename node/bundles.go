package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/peering"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/audit"
)

// bundleEndpoint is the URL of this domain's bundle for peers; zero if there is none.
func (ps *peers) bundleEndpoint() directory.BundleEndpoint {
	if ps.cfg.Bundles.Endpoint.IsZero() && ps.cfg.Bundles.Serve {
		return directory.BundleEndpoint{URL: ps.cfg.PublicURL + wire.BundlePath, Profile: directory.ProfileSPIFFE}
	}

	return ps.cfg.Bundles.Endpoint
}

// bundleSources asks for the bundles of peers: at the agreed endpoint, and at the other nodes of a
// peer if that doesn't answer.
type bundleSources struct {
	fetcher *trust.Fetcher
	// known returns base URLs of a peer's nodes, in addition to the agreed ones.
	known func(td spiffeid.TrustDomain) []string
}

// maxBundleSources bounds the nodes of one peer that are asked for its bundle in turn.
const maxBundleSources = 8

// of returns the places at which a peer's bundle is asked for, the agreed endpoint first. The nodes
// of the peer follow only if any node of the peer is accepted as the endpoint, too.
func (b bundleSources) of(with directory.Peering, known []string) []directory.BundleEndpoint {
	sources := []directory.BundleEndpoint{with.Endpoint}
	if with.Endpoint.Profile != directory.ProfileSPIFFE || !with.Endpoint.ID.IsZero() {
		return sources
	}

	for _, base := range slices.Concat(with.Addresses, known) {
		source := directory.BundleEndpoint{URL: base + wire.BundlePath, Profile: directory.ProfileSPIFFE}
		if len(sources) < maxBundleSources && !slices.Contains(sources, source) {
			sources = append(sources, source)
		}
	}

	return sources
}

// inTurn asks one source after the other until ask succeeds. Those that follow have a part of the
// time left, because a host that is down doesn't answer at all. It returns the errors otherwise.
func inTurn(ctx context.Context, sources []directory.BundleEndpoint,
	ask func(ctx context.Context, source directory.BundleEndpoint) error) (failed []error) {
	for i, source := range sources {
		bound, cancel := ctx, context.CancelFunc(func() {})
		if until, ok := ctx.Deadline(); ok {
			bound, cancel = context.WithTimeout(ctx, time.Until(until)/time.Duration(len(sources)-i))
		}

		err := ask(bound, source)
		cancel()

		if err == nil {
			return nil
		}

		failed = append(failed, err)
	}

	return failed
}

func (b bundleSources) fetch(ctx context.Context, with directory.Peering) (peering.FetchedBundle, error) {
	var found peering.FetchedBundle

	failed := inTurn(ctx, b.of(with, b.known(with.Domain)),
		func(ctx context.Context, source directory.BundleEndpoint) error {
			got, err := b.fetcher.Fetch(ctx, with.Domain, source, with.Bundle)
			found = peering.FetchedBundle{JWKS: got.JWKS, News: got.News, Again: got.Again, Source: source.URL}

			return err
		})

	switch len(failed) {
	case 0:
		return found, nil
	case 1:
		return found, failed[0]
	}

	return found, fmt.Errorf("%w; %d other nodes of the peer were asked in vain: %w", failed[0], len(failed)-1,
		failed[len(failed)-1])
}

// confirm asks for a bundle that the domain has taken: see trust.Fetcher.Confirm.
func (b bundleSources) confirm(ctx context.Context, change *directory.BundleChange) error {
	return errors.Join(inTurn(ctx, b.of(change.Was, nil),
		func(ctx context.Context, source directory.BundleEndpoint) error {
			return b.fetcher.Confirm(ctx, change.Was.Domain, source, change.Was.Bundle, change.Next)
		})...)
}

// heldBundles are the trust bundles that this node holds, for its API.
type heldBundles struct{ bundles *trust.Bundles }

// Publish implements operator.TrustBundles.
func (h heldBundles) Publish(domain spiffeid.TrustDomain) ([]byte, error) {
	bundle, err := h.bundles.Publish(domain)
	if errors.Is(err, trust.ErrNoBundle) {
		return nil, directory.Refuse(directory.NotFound, "this node holds no bundle of %s", domain.Name())
	}

	return bundle, err
}

// verifyProof verifies a proof file by the bundle that this node holds of the proof's domain,
// and returns the report as JSON.
func (h heldBundles) verifyProof(_ context.Context, proof []byte) ([]byte, error) {
	// Without an anchor nothing of the proof is trusted. It only names the domain whose bundle is needed.
	named, _ := trust.Verify(proof, trust.VerifyOptions{})

	options := trust.VerifyOptions{Held: true}

	if domain, err := spiffeid.TrustDomainFromString(named.Subject.Domain); err == nil {
		if text, err := h.bundles.Publish(domain); err == nil {
			if options.Bundle, err = trust.ParseBundle(domain, text); err != nil {
				return nil, err
			}
		}
	}

	report, _ := trust.Verify(proof, options) // the report has the verdict

	return json.Marshal(report)
}

// List implements operator.TrustBundles.
func (h heldBundles) List() []wire.TrustBundle {
	list := []wire.TrustBundle{}
	for _, domain := range h.bundles.Domains() {
		jwks, err := h.bundles.JWKS(domain)
		if err != nil {
			continue // removed meanwhile
		}

		if prints, err := trust.Fingerprints(domain, jwks); err == nil { // it was checked when it was set
			list = append(list, wire.TrustBundle{Domain: domain.Name(), Fingerprints: prints})
		}
	}

	return list
}

// Bounds of the checks of bundles that the domain took.
const (
	judgedAtOnce    = 8                // checks at a time
	bundlesWait     = 64               // changes that wait for a check
	bundleJudgeTime = 2 * time.Minute  // until when the nodes of an endpoint may differ
	bundleAttempt   = 15 * time.Second // one question to an endpoint
	bundlePause     = 10 * time.Second
	bundleAgain     = time.Minute // until the next check of a bundle that is held back
)

// A bundleJudge asks the endpoint of a peer, authenticated by the bundle before, for each bundle that
// the domain has taken in its place. Nothing else shows that a member found it there: the leader may
// have made it. It reports a bundle that the endpoint doesn't have. One that is held back is asked for until the
// endpoint has it, and then put in force.
type bundleJudge struct {
	found     func(change *directory.BundleChange) bool // by this node, lately
	confirm   func(ctx context.Context, change *directory.BundleChange) error
	holds     func(change *directory.BundleChange) bool // whether the bundle waits for a confirmation
	confirmed func(change *directory.BundleChange)      // puts such a bundle in force
	trail     *audit.Log
	log       *slog.Logger
	invalid   func() // counts bundles that the endpoint doesn't have
	unchecked func() // counts changes that could not be checked

	pause, during time.Duration
	waiting       chan bundleCheck
}

// A bundleCheck is a change to be checked. Once it was reported, it is asked for once a minute.
type bundleCheck struct {
	*directory.BundleChange

	reported bool
}

// add has a change checked.
func (j *bundleJudge) add(change *directory.BundleChange) {
	select {
	// The recorder of commands must not wait for endpoints.
	case j.waiting <- bundleCheck{BundleChange: change}:
	default:
		j.unchecked()
		j.log.Error("bundles of peers were replaced faster than this node could check them; a member's key may be "+
			"stolen", "peer", change.Was.Domain.Name())
		j.note(change, directory.OutcomeUnchecked)
	}
}

// run checks changes until ctx ends.
func (j *bundleJudge) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()

	free := make(chan struct{}, judgedAtOnce)

	for {
		// A change leaves the queue only for a free place, so that the bound of the queue holds.
		select {
		case <-ctx.Done():
			return
		case free <- struct{}{}:
		}

		select {
		case <-ctx.Done():
			return
		case check := <-j.waiting:
			all.Go(func() {
				j.judge(ctx, check)
				<-free

				if j.holds(check.BundleChange) {
					j.again(ctx, check.BundleChange)
				}
			})
		}
	}
}

// again has a change checked again after a while that is held back.
func (j *bundleJudge) again(ctx context.Context, change *directory.BundleChange) {
	select {
	case <-time.After(bundleAgain):
	case <-ctx.Done():
		return
	}

	if !j.holds(change) {
		return
	}

	select {
	case j.waiting <- bundleCheck{change, true}:
	case <-ctx.Done():
	}
}

// judge asks until the endpoint has the bundle, or for a while.
func (j *bundleJudge) judge(ctx context.Context, check bundleCheck) {
	change, until := check.BundleChange, time.Now().Add(j.during)

	for other := error(nil); ; {
		// This node has fetched the same bundle by itself, which is proof enough.
		if j.found(change) {
			j.confirmed(change)
			return
		}

		bound, cancel := context.WithTimeout(ctx, bundleAttempt)
		err := j.confirm(bound, change)

		cancel()

		if err == nil {
			j.confirmed(change)
			return
		}

		if ctx.Err() != nil || check.reported {
			return
		}

		// The nodes of an endpoint may differ for a while, so another bundle is reported only at the end.
		if errors.Is(err, trust.ErrBundleOther) {
			other = err
		}

		if time.Now().After(until) {
			j.report(change, other, err)

			return
		}

		select {
		case <-time.After(j.pause):
		case <-ctx.Done():
			return
		}
	}
}

// report reports a bundle that is not the endpoint's: other is nil if the endpoint gave no clear answer.
func (j *bundleJudge) report(change *directory.BundleChange, other, last error) {
	name, url := change.Was.Domain.Name(), change.Was.Endpoint.URL

	if other == nil {
		j.unchecked()
		j.log.Warn("a peer's new bundle could not be checked at its endpoint; compare its fingerprints", "peer", name,
			"endpoint", url, "err", last)
		j.note(change, directory.OutcomeUnchecked)

		return
	}

	j.invalid()
	j.log.Error("the domain took a bundle of a peer that the peer's endpoint does not have; a member's key may be "+
		"stolen", "peer", name, "endpoint", url, "err", other)
	j.note(change, directory.OutcomeUnproven)
}

// note writes a finding about a bundle into the audit log.
func (j *bundleJudge) note(change *directory.BundleChange, outcome string) {
	event := directory.AuditEvent{
		Action: directory.ActionBundle, Target: change.Was.Domain.Name(), By: directory.ByNode,
	}

	done, err := j.trail.Intend(event)
	if err != nil {
		j.log.Error("a finding is missing in the audit trail", "action", event.Action, "err", err)

		return
	}

	event.Outcome = outcome
	done(event)
}

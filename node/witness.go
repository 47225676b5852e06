package node

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/roster-mesh/roster/federation"
	"github.com/roster-mesh/roster/federation/witness"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/trust"
)

// witnessStore is the domain's memory of the checkpoints that it has cosigned.
type witnessStore struct{ store *consensus.Store }

// Cosigned implements witness.Store.
func (s witnessStore) Cosigned(origin string) (witness.Taken, uint64, bool) {
	log, epoch, ok := s.store.Cosigned(origin)
	return witness.Taken(log), epoch, ok
}

// Cosign implements witness.Store.
func (s witnessStore) Cosign(ctx context.Context, next witness.Next, proof []directory.Hash) (uint64, time.Time,
	error) {
	outcome, err := s.store.Cosign(ctx, consensus.Checkpoint(next), proof)
	return outcome.Position.Epoch, time.Unix(outcome.CosignedAt, 0), err
}

// Linearize implements witness.Store.
func (s witnessStore) Linearize(ctx context.Context) error { return s.store.Linearize(ctx) }

// checkCheckpoint is consensus.Config's.
func (n *Node) checkCheckpoint(c consensus.Checkpoint, last consensus.CosignedLog, proof []directory.Hash) error {
	return n.logs.Check(witness.Next(c), witness.Taken(last), proof)
}

// witnessedLogs returns the logs that the domain cosigns.
func (n *Node) witnessedLogs() *witness.Logs {
	return &witness.Logs{
		Keys: n.keyring, Peerings: n.agreements.List, Outside: outsideLogs(n.cfg.Witness.Logs),
		Every: n.cfg.Witness.Every,
	}
}

// outsideLogs returns the logs of the configuration, which was validated. A log may have several keys.
func outsideLogs(configured []config.OutsideLog) (logs []witness.Log) {
	places := map[string]int{}

	for _, one := range configured {
		key, err := checkpoint.ParseVerifierKey(one.VKey)
		if err != nil {
			continue
		}

		if i, known := places[key.Name]; known {
			logs[i].Keys = append(logs[i].Keys, key)
			continue
		}

		places[key.Name] = len(logs)
		logs = append(logs, witness.Log{Keys: []checkpoint.VerifierKey{key}, Every: one.Every, Contact: one.Contact})
	}

	return logs
}

// newWitness returns the witness that this node's API serves.
func (n *Node) newWitness() *witness.Witness {
	return witness.New(witness.Config{
		PublicURL: n.cfg.PublicURL, Logs: n.logs, Store: witnessStore{n.store}, Keys: n.keyring,
		Policy:      func() (string, error) { return n.witnessing.witnesses.own(n.cfg.PublicURL) },
		Contradicts: n.mesh.Contradicts,
	})
}

// witnesses knows who cosigns the domain's own ledger: its active peers, and the outside
// witnesses of the configuration.
type witnesses struct {
	domain   spiffeid.TrustDomain
	cfg      config.Witness
	keyring  *trust.Keyring
	peerings func() []directory.Peering
	stated   func(peer spiffeid.TrustDomain) []string // further addresses of its nodes
	client   func(peer spiffeid.TrustDomain) *http.Client
	outside  *http.Client
}

// targets returns the witnesses to ask. A peer without a cosigning key is left out.
func (w *witnesses) targets() (targets []witness.Target) {
	for _, peering := range w.peerings() {
		if peering.State != directory.PeeringActive {
			continue
		}

		keys := w.keysOf(peering.Domain)
		if len(keys) == 0 {
			continue
		}

		target := witness.Target{
			Name: peering.Domain.Name(), Keys: keys, Every: w.cfg.Every, Client: w.client(peering.Domain),
		}
		for _, base := range slices.Concat(peering.Addresses, w.stated(peering.Domain)) {
			target.URLs = append(target.URLs, base+witness.Prefix)
		}

		targets = append(targets, target)
	}

	for _, one := range w.cfg.Witnesses {
		if key, err := checkpoint.ParseVerifierKey(one.VKey); err == nil { // it was validated
			targets = append(targets, witness.Target{
				Name: key.Name, URLs: []string{one.URL}, Keys: []checkpoint.VerifierKey{key},
				Every: cmp.Or(one.Every, w.cfg.Every), Client: w.outside,
			})
		}
	}

	return targets
}

// keysOf returns the keys by which the nodes of a domain cosign, one for each name.
func (w *witnesses) keysOf(domain spiffeid.TrustDomain) (keys []checkpoint.VerifierKey) {
	for _, key := range w.keyring.WitnessKeys(domain) {
		if !slices.ContainsFunc(keys, func(k checkpoint.VerifierKey) bool { return k.Name == key.Name }) {
			keys = append(keys, key) // a former key of the node comes behind
		}
	}

	return keys
}

// groupOfWitnesses is the name of the policy's group of all witnesses.
const groupOfWitnesses = "witnesses"

// amend adds the witnesses to the policy of a ledger, a group for each peer, and their quorum.
func (w *witnesses) amend(policy *checkpoint.Policy) {
	var all []string

	for _, target := range w.targets() {
		url := ""
		if len(target.URLs) > 0 {
			url = target.URLs[0]
		}

		all = append(all, target.Name)
		names := addWitnesses(policy, target.Keys, url)

		// An outside witness is a single key, so it needs no group.
		if target.Client != w.outside {
			addDomain(policy, target.Name, names)
		}
	}

	policy.Quorum = checkpoint.NoQuorum

	// With fewer witnesses than configured, all of them are the quorum.
	if quorum := min(w.cfg.Quorum, len(all)); quorum > 0 {
		policy.Groups = append(policy.Groups, checkpoint.PolicyGroup{
			Name: groupOfWitnesses, Threshold: quorum, Members: all,
		})
		policy.Quorum = groupOfWitnesses
	}
}

// addWitnesses adds the keys of a witness to a policy, and returns their names.
func addWitnesses(policy *checkpoint.Policy, keys []checkpoint.VerifierKey, url string) (names []string) {
	for _, key := range keys {
		names = append(names, key.Name)
		policy.Witnesses = append(policy.Witnesses, checkpoint.PolicyWitness{Name: key.Name, Key: key, URL: url})
	}

	return names
}

// addDomain adds the group of a domain, which counts once, however many of its nodes cosign.
func addDomain(policy *checkpoint.Policy, domain string, nodes []string) {
	policy.Groups = append(policy.Groups, checkpoint.PolicyGroup{Name: domain, Threshold: 1, Members: nodes})
}

// own returns the policy by which operators of other logs ask for a cosignature of this domain.
func (w *witnesses) own(publicURL string) (string, error) {
	keys := w.keysOf(w.domain)
	if len(keys) == 0 {
		return "", directory.Refuse(directory.Unavailable,
			"the key document of this domain lists no cosigning key yet; try again later")
	}

	policy := &checkpoint.Policy{Quorum: w.domain.Name()}
	addDomain(policy, policy.Quorum, addWitnesses(policy, keys, publicURL+witness.Prefix))

	return policy.Text(), nil
}

// ownLedger is the domain's ledger for the asker of its witnesses.
type ownLedger struct{ ledgers }

// Leads implements witness.Ledger.
func (l ownLedger) Leads() bool { return l.store.IsLeader() }

// Checkpoint implements witness.Ledger.
func (l ownLedger) Checkpoint() (string, error) {
	epoch, tree := l.store.Logs.Tree()

	log, _, err := l.store.Logs.Log(epoch)
	if err != nil {
		return "", err
	}

	// Without the entries, this node could not serve the proofs that its signature promises.
	if _, missing := log.Missing(); missing {
		return "", unavailableLedger(ledger.ErrIncomplete)
	}

	return l.sign(checkpoint.Checkpoint{Origin: l.origin(epoch), Size: tree.Size, Root: tree.Root})
}

// Consistency implements witness.Ledger.
func (l ownLedger) Consistency(old uint64, c checkpoint.Checkpoint) ([]directory.Hash, error) {
	log, _, err := l.store.Logs.Log(l.Epoch())
	if err != nil {
		return nil, err
	}

	proof, err := log.Consistency(ledger.Tree{Size: c.Size, Root: c.Root}, old)

	return proof, unavailableLedger(err)
}

// Cosigned implements witness.Ledger.
func (l ownLedger) Cosigned() (c checkpoint.Checkpoint, lines string) {
	own := l.store.Cosignatures()
	return checkpoint.Checkpoint{Origin: l.origin(own.Epoch), Size: own.Size, Root: own.Root}, own.Lines
}

// Suffices implements witness.Ledger.
func (l ownLedger) Suffices(c checkpoint.Checkpoint, lines string) bool {
	policy := &checkpoint.Policy{}
	l.witnesses.amend(policy)

	return witnessesOf(policy, c, lines) != nil
}

// Keep implements witness.Ledger. A member that leads no longer keeps nothing: the next leader asks the witnesses
// itself.
func (l ownLedger) Keep(ctx context.Context, c checkpoint.Checkpoint, lines string) error {
	err := l.store.KeepCosignatures(ctx, consensus.Cosignatures{
		Epoch: l.Epoch(), Size: c.Size, Root: c.Root, Lines: lines,
	})
	if !l.store.IsLeader() {
		return nil
	}

	return err
}

// A cosigned is the newest checkpoint of the own ledger of which this node knows cosignatures.
type cosigned struct {
	log       string
	size      uint64
	witnesses *directory.Witnesses // nil without the quorum
	asked     bool                 // the policy has a quorum
}

// witnessing judges the cosignatures of the domain's ledger by its own policy.
type witnessing struct {
	witnesses witnesses
	store     *consensus.Store
	latest    atomic.Pointer[cosigned]
	asked     submissions
}

// submissions are the outcomes of this node's submissions to the witnesses.
type submissions struct {
	mu   sync.Mutex // guards last
	last map[string]wire.WitnessStatus
}

// note keeps the outcome of a submission.
func (s *submissions) note(witness string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.last == nil {
		s.last = map[string]wire.WitnessStatus{}
	}

	status := s.last[witness]
	status.Name = witness
	now := time.Now().UTC().Truncate(time.Second)

	switch {
	case err == nil:
		status = wire.WitnessStatus{Name: witness, Cosigned: now}
	case status.Error == "":
		status.FailingSince = now
		fallthrough
	default:
		status.Error = err.Error()
	}

	s.last[witness] = status
}

func (s *submissions) of(witness string) (status wire.WitnessStatus, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status, ok = s.last[witness]

	return status, ok
}

// status returns the state of the domain's ledger.
func (w *witnessing) status() (status wire.LedgerStatus) {
	status.Leaves, _ = w.store.Ledger()
	status.Incomplete = !w.store.Logs.Whole()

	if leaves, asked := w.leaves(); asked {
		status.Cosigned = &leaves
	}

	// A former leader's outcomes are old.
	if !w.store.IsLeader() {
		return status
	}

	for _, target := range w.witnesses.targets() {
		if one, ok := w.asked.of(target.Name); ok {
			status.Witnesses = append(status.Witnesses, one)
		}
	}

	return status
}

// run follows the cosignatures until ctx ends.
func (w *witnessing) run(ctx context.Context) {
	for {
		changed := w.store.Agreed()
		w.judge()

		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(witnessingEvery): // the keys of witnesses change too
		}
	}
}

const witnessingEvery = 30 * time.Second

// judge finds the witnesses of the newest cosignatures.
func (w *witnessing) judge() {
	own := w.store.Cosignatures()

	policy := &checkpoint.Policy{}
	w.witnesses.amend(policy)

	found := &cosigned{
		log: directory.LogName(w.witnesses.domain, own.Epoch), size: own.Size,
		asked: policy.Quorum != checkpoint.NoQuorum,
	}

	// An empty log has no cosignatures, and without a quorum they prove nothing.
	if own.Size > 0 && found.asked {
		c := checkpoint.Checkpoint{Origin: found.log, Size: own.Size, Root: own.Root}
		found.witnesses = witnessesOf(policy, c, own.Lines)
	}

	if last := w.latest.Load(); last == nil || last.log != found.log || last.size != found.size ||
		last.asked != found.asked || !last.witnesses.Equal(found.witnesses) {
		w.latest.Store(found)
	}
}

// witnessesOf returns the witnesses of a checkpoint, if they are the quorum of a policy.
func witnessesOf(policy *checkpoint.Policy, c checkpoint.Checkpoint, lines string) *directory.Witnesses {
	signatures, err := checkpoint.ParseSignatures(lines)
	if err != nil {
		return nil
	}

	found, err := policy.Judge(&checkpoint.Note{Checkpoint: c, Text: c.Text(), Signatures: signatures})
	if err != nil || !found.Quorum {
		return nil
	}

	by := &directory.Witnesses{}
	for _, one := range found.Witnesses {
		*by = append(*by, directory.Witnessed{Name: one.Witness.Name, At: one.At.Unix()})
	}

	return by
}

// leaves returns how many leaves the witnesses have cosigned; asked is false if the policy has no quorum.
func (w *witnessing) leaves() (leaves uint64, asked bool) {
	c := w.latest.Load()

	switch {
	case c == nil:
		return 0, false
	case c.witnesses == nil:
		return 0, c.asked
	default:
		return c.size, c.asked
	}
}

// of adds to a place in the ledger who has cosigned a checkpoint that covers it.
func (w *witnessing) of(at *directory.Inclusion) {
	if c := w.latest.Load(); c != nil && c.log == at.Log && at.Index < c.size {
		at.Witnesses = c.witnesses
	}
}

// startWitnesses has the domain's ledger cosigned, and follows the cosignatures.
func startWitnesses(n *Node, pace federation.Stretch) {
	n.witnessing = &witnessing{store: n.store, witnesses: witnesses{
		domain: n.cfg.TrustDomain, cfg: n.cfg.Witness, keyring: n.keyring, peerings: n.agreements.List,
		stated: n.mesh.StatedAddresses, client: n.client, outside: trust.PinnedClient(&http.Transport{}),
	}}

	asker := witness.NewAsker(witness.AskerConfig{
		Ledger: ownLedger{n.ledgers()}, Targets: n.witnessing.witnesses.targets, Logger: n.log, Panics: n.panics,
		Asked: func(target string, err error) {
			n.metrics.Submitted(target, err)
			n.witnessing.asked.note(target, err)
		},
		Pace: pace,
	})
	n.life.loop("witnesses", asker.Run)
	n.life.loop("cosignatures", n.witnessing.run)
}

package consensus

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/roster-mesh/roster/directory"
)

// A joiner makes this node the member that its configuration says: it asks members until
// Raft's configuration has it so. The same request moves a member to another address,
// promotes a newcomer that has caught up, says where its directory is, and finds the
// nodes with which a domain begins (see survey).
type joiner struct {
	*member

	terms     *terms
	diskWatch *diskWatch
	joins     *admitter
	mistakes  map[string]string // by address, the advice that was logged
}

// ask sends a join request to an address and returns the node that answered.
func (j *joiner) ask(ctx context.Context, address string, word *message.JoinRequest) (id spiffeid.ID,
	answer message.JoinAnswer, err error) {
	body, err := j.messenger.encode(word)
	if err != nil {
		return id, answer, err
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+joinPath, bytes.NewReader(body))
	if err != nil {
		return id, answer, err
	}

	req.Header.Set("Content-Type", message.TypeCBOR)

	resp, err := j.messenger.cluster.Guest().Do(req)
	if err != nil {
		return id, answer, asMistake(address, err)
	}
	defer resp.Body.Close()

	// The cluster's listener has this route for every node, so another listener has answered.
	if resp.StatusCode == http.StatusNotFound {
		return id, answer, &mistakeError{address, adviceListener, errors.New("another listener answers")}
	}

	if resp.StatusCode != http.StatusOK {
		return id, answer, fmt.Errorf("%s answered %s", address, resp.Status)
	}

	err = readMessage(resp.Body, &answer)

	// The certificate names the node, because an answer could name another one.
	id, _ = transport.PeerID(resp.TLS)

	return id, answer, err
}

// A mistakeError has the advice by which an operator corrects an address of a join request that is not that of
// a node of this domain. Waiting doesn't change it.
type mistakeError struct {
	address, advice string
	err             error
}

func (e *mistakeError) Error() string { return fmt.Sprintf("%s: %v; %s", e.address, e.err, e.advice) }

// Unwrap returns the failure.
func (e *mistakeError) Unwrap() error { return e.err }

const (
	adviceListener    = "give the address of listen.cluster of a node of the domain in join or members"
	adviceCertificate = "compare trust_domain and identity.bundle of both nodes: they need the same"
)

// asMistake returns the failure of a join request as a mistakeError if waiting can't change it, else
// unchanged.
func asMistake(address string, err error) error {
	var (
		certificate *transport.CertificateError
		chain       *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		network     *net.OpError
	)

	switch {
	case errors.As(err, &certificate):
		return &mistakeError{address, adviceCertificate, certificate}
	case errors.As(err, &chain):
		return &mistakeError{address, adviceCertificate, chain}
	case errors.As(err, &record):
		return &mistakeError{address, adviceListener, errors.New("no TLS is spoken there")}
	case !errors.As(err, &network) || network.Op != "remote error":
		// Only the TLS alert of the other side is a mistake. Other failures of the network may pass.
		return err
	case strings.Contains(network.Err.Error(), "expired"):
		// The certificate is renewed, so waiting helps.
		return err
	case strings.Contains(network.Err.Error(), "no application protocol"):
		return &mistakeError{address, adviceListener, errors.New("another protocol is spoken there")}
	}

	return &mistakeError{address, adviceCertificate, fmt.Errorf("this node's certificate is refused: %w", network.Err)}
}

// isSeated reports whether this node is the member that its configuration says. A node
// without contact to a leader asks again, and a duplicate until the leader says that it is none.
func (j *joiner) isSeated() bool {
	me, is := j.group.server(j.cfg.Node)
	said, told := j.replica.member(j.cfg.Node)

	word := state.Member{API: j.cfg.API, Reads: j.cfg.reads, Listeners: j.cfg.Listeners}

	return is && told && said.SameWord(word) && !j.group.duplicate.Load() &&
		me.Address == j.group.self().Address && (me.voter || j.cfg.Reader) &&
		j.diskWatch.Heard() < 10*j.cfg.Timing.Heartbeat
}

// maxJoinAddresses bounds the addresses to which names in Join resolve.
const maxJoinAddresses = 64

// joinAddresses returns the addresses of Join. A host name with several addresses, such as
// that of a headless service, is replaced by them: each is another node.
func (j *joiner) joinAddresses(ctx context.Context) []string {
	if j.cfg.Resolve == nil {
		return j.cfg.Join
	}

	var addresses []string
	for _, address := range j.cfg.Join {
		host, port, _ := net.SplitHostPort(address)

		found, err := j.cfg.Resolve(ctx, host)
		if err != nil || len(found) < 2 {
			found = []string{host} // the connection's failure has the reason
		}

		for _, each := range found {
			addresses = append(addresses, net.JoinHostPort(each, port))
		}
	}

	return addresses[:min(len(addresses), maxJoinAddresses)]
}

// listed returns the addresses of other nodes that the configuration has.
func (j *joiner) listed(ctx context.Context) []string {
	addresses := j.joinAddresses(ctx)
	for _, m := range j.cfg.Members {
		addresses = append(addresses, m.Address)
	}

	return addresses
}

// places returns the addresses at which a member was found, besides the one that the group has: where
// the configuration says, and where it has answered a join request.
func (j *joiner) places(id spiffeid.ID) []string {
	var addresses []string

	for _, m := range j.cfg.Members {
		if m.ID == id {
			addresses = append(addresses, m.Address)
		}
	}

	if address, ok := j.joins.found.place(id); ok {
		addresses = append(addresses, address)
	}

	return addresses
}

// requestJoin asks the leader, or every node that it knows of. nil means that the leader has done all
// that it can do by now.
func (j *joiner) requestJoin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, j.cfg.Timing.Write)
	defer cancel()

	word := j.joins.ownRequest()
	if leader := j.terms.leader(); leader != nil {
		return leader.addMember(ctx, j.cfg.Node, word)
	}

	answers := newSurvey(j.cfg, word.Address)
	listed := j.listed(ctx)

	// The known leader comes first. Its answer ends the survey.
	if leader, ok := j.group.leader(); ok && leader.ID != j.cfg.Node {
		j.askAll(ctx, answers, []string{leader.Address}, listed, word)
	}

	// Members may have moved, and listed addresses may be former ones, so both are asked.
	doors := slices.Clone(listed)
	for _, m := range j.group.servers() {
		doors = append(doors, m.Address)
	}

	// The rounds end, because no address is asked twice.
	for len(doors) > 0 && !answers.isOver() && ctx.Err() == nil {
		j.askAll(ctx, answers, doors, listed, word)
		j.logMistakes(answers, listed)
		doors = answers.leaders()
	}

	// The leader's answer outweighs the refusal of a member, which may know an older group.
	switch {
	case answers.duplicate != nil:
		j.group.duplicate.Store(true)

		return answers.duplicate
	case answers.done != nil:
		j.group.duplicate.Store(false)
		j.group.wasSeated.Store(true)

		// The name is on the disk before Raft answers messages in that history.
		return j.storage.enter(transport.HistoryOf(answers.done.History))
	case answers.refused != nil:
		return answers.refused
	case len(j.group.servers()) > 0:
		return answers.withoutLeader(j.group.servers(), j.storage.history())
	case j.cfg.expected() == 0:
		return answers.err
	}

	return j.begin(answers)
}

// logMistakes logs each mistake of the configuration once, and at once: a node that starts is silent
// about failures that may pass. Addresses that only another node names are not the configuration's.
func (j *joiner) logMistakes(answers *survey, listed []string) {
	for _, err := range answers.failures() {
		var mistake *mistakeError
		if !errors.As(err, &mistake) || !slices.Contains(listed, mistake.address) {
			continue
		}

		if j.mistakes[mistake.address] != mistake.advice {
			j.mistakes[mistake.address] = mistake.advice
			j.log.Warn("an address is not that of a node of this domain", "address", mistake.address,
				"err", mistake.err, "do", mistake.advice)
		}
	}
}

// askAll asks at addresses that were not asked yet, at all of them at the same time. A member is found at
// those that the configuration lists alone: others are another node's word, which may have a stolen key.
func (j *joiner) askAll(ctx context.Context, answers *survey, doors, listed []string, word *message.JoinRequest) {
	var all sync.WaitGroup

	for _, address := range doors {
		if !answers.begin(address) {
			continue
		}

		all.Go(func() {
			id, answer, err := j.ask(ctx, address, word)
			if err == nil {
				if slices.Contains(listed, address) {
					j.joins.found.note(id, address)
				}

				// The histories are compared first: an answer from another one says nothing of this domain.
				claim := transport.Claim{History: transport.HistoryOf(answer.History), Voter: answer.Voter}
				err = j.histories.judge(id, claim)
			}

			answers.add(address, id, &answer, err)
		})
	}

	all.Wait()
}

// begin begins a domain once exactly the expected nodes have found exactly each other, with the same
// addresses, none of them has a history, and every listed node has answered. Only the one with the
// lowest id begins it, so that no two domains begin.
func (j *joiner) begin(answers *survey) error {
	if err := answers.waitForHistory(j.joins.ownRequest()); err != nil {
		return err
	}

	found, err := answers.candidates(j.group.self())
	if err != nil {
		return err
	}

	name, err := answers.nameOf(found, j.joins.ownRequest())
	if err != nil {
		return err
	}

	// All of them have an empty disk. The one that begins the domain needs the others' votes, and
	// waits until they have come this far.
	if err := j.storage.enter(name); err != nil {
		return err
	}

	// The next request has these nodes, which shows the others that both have found the same ones.
	j.joins.found.set(found)

	if err := answers.agree(found); err != nil {
		return err
	}

	if found[0].ID != j.cfg.Node {
		return fmt.Errorf("waiting for %s to begin the domain", found[0].ID)
	}

	// Nodes that an operator has waived get their seats, although they are absent.
	seats := append(found, answers.waived()...)
	j.log.Info("beginning the domain", "members", len(seats), "history", name.String())

	if err := j.group.raft.BootstrapCluster(configurationOf(seats)).Error(); err != nil {
		return fmt.Errorf("begin the domain: %w", err)
	}

	return nil
}

// run sends join requests while this node is not the member that its configuration says.
func (j *joiner) run() {
	said, knocking := "", joinPause
	for {
		pause, why := j.cfg.Timing.Presence, ""
		if j.isSeated() {
			knocking = joinPause
			j.group.outside.Store(nil)
			j.group.wasSeated.Store(true)
			j.group.stuck.Store(nil)
		} else {
			pause, knocking = knocking, min(knocking*5/4, joinPauseLongest)

			if err := j.requestJoin(j.life.closing); err != nil {
				why = j.noteOutside(err)

				if _, ok := errors.AsType[*mistakeError](err); ok {
					// It is logged already, for each address.
					why = ""
				}
			}
		}

		if why == "" || time.Since(j.group.opened) < quietStart {
			// The reason is logged again if it comes back.
			said = ""
		} else if why != said && j.life.closing.Err() == nil {
			said = why
			level, message := j.waiting()
			j.log.Log(j.life.closing, level, message, "reason", why)
		}

		select {
		case <-time.After(pause):
		case <-j.joins.found.news: // a node with which this one may begin a domain
		case <-j.life.closing.Done():
			return
		}
	}
}

// waiting returns the message of a node that is not the member that its configuration says. An operator has to
// act on a warning.
func (j *joiner) waiting() (slog.Level, string) {
	_, is := j.group.server(j.cfg.Node)
	_, led := j.group.leader()
	outside := j.group.outside.Load() != nil

	switch {
	case j.group.duplicate.Load():
		return slog.LevelWarn, "another process has this node's identity and its seat; " +
			"this one takes no part in the domain"
	case outside && j.group.wasSeated.Load():
		return slog.LevelInfo, "this node was removed from its domain; stop it, or admit it again"
	case outside && is:
		return slog.LevelWarn, "waiting to be let back into the domain"
	case outside:
		return slog.LevelInfo, "waiting for the domain to begin or to admit this node"
	case !led:
		return slog.LevelInfo, "waiting for a leader: a majority of the domain's nodes must run"
	}

	return slog.LevelInfo, "waiting for the leader to take over this member's address, versions or listeners"
}

// noteOutside notes why this node is no member, if so: by its own knowledge or the leader's
// answer. Writes wait for a domain that is about to begin.
func (j *joiner) noteOutside(err error) string {
	why := err.Error()
	_, is := j.group.server(j.cfg.Node)
	begins := len(j.group.servers()) == 0 && j.cfg.expected() > 0 &&
		(j.storage.hasEntered() || time.Since(j.group.opened) < quietStart)

	if !is && !begins || directory.ProblemOf(err) == directory.Forbidden {
		j.group.outside.Store(&why)
	} else {
		j.group.outside.Store(nil)
	}

	if errors.Is(err, errEmptyDisks) || errors.Is(err, ErrOtherHistory) {
		j.group.stuck.Store(&why)
	} else {
		j.group.stuck.Store(nil)
	}

	return why
}

// joinPause is the time between two join requests of a node. While they fail, it grows up to
// joinPauseLongest, because each costs both sides a handshake.
const (
	joinPause        = 500 * time.Millisecond
	joinPauseLongest = 5 * time.Second
)

// quietStart is for how long a node that starts does not complain.
const quietStart = 3 * time.Second

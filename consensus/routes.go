package consensus

import (
	"net/http"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	httpproblem "github.com/roster-mesh/roster/directory/problem"
)

// handler serves what other members send. Nobody else is let in, and who is a
// member no more gets no further answer over a connection that it still has.
func (s *Store) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+presencePath, func(w http.ResponseWriter, r *http.Request) {
		var word presenceWord
		if !s.messenger.receive(w, r, s.group.raft.State() == raft.Leader, &word) {
			return
		}
		from, _ := peerID(r.TLS)
		s.clocks.presence.note(from, time.UnixMilli(word.Time), s.cfg.clock())
		var a presenceAnswer // of a leader that is not ready to lead, nobody learns how far the domain is
		if s.group.leading.Load() {
			at := s.Replica.Position()
			a = presenceAnswer{Epoch: at.Epoch, Revision: at.Revision}
			if now, err := s.clocks.stamp(); err == nil {
				a.Time = now
			}
			if s.Replica.Written().Wire > state.FirstVersion {
				a.PresenceNext = state.NextPresence()
			}
		}
		s.messenger.answer(w, &a)
	})
	mux.HandleFunc("POST "+readPath, func(w http.ResponseWriter, r *http.Request) {
		if !s.messenger.receive(w, r, s.group.leading.Load(), &readWord{}) {
			return
		}
		at, err := s.reader.confirmed.join(r.Context())
		if err != nil {
			s.messenger.refuse(w, errMisdirected)
			return
		}
		signal(s.proposer.batches.tell) // the reader waits for its member to be there
		s.messenger.answer(w, &presenceAnswer{Epoch: at.Epoch, Revision: at.Revision})
	})
	mux.HandleFunc("POST "+vouchPath, func(w http.ResponseWriter, r *http.Request) {
		var word vouchWord
		if s.messenger.receive(w, r, true, &word) {
			_, is := s.group.server(word.ID)
			s.messenger.answer(w, &vouchAnswer{is})
		}
	})
	mux.HandleFunc("POST "+asidePath, func(w http.ResponseWriter, r *http.Request) {
		var word asideWord
		if s.messenger.receive(w, r, s.group.leading.Load() && s.cfg.Aside != nil, &word) {
			s.messenger.answer(w, &asideWord{s.cfg.Aside(word.Text)})
		}
	})
	mux.HandleFunc("POST "+contactsPath, func(w http.ResponseWriter, r *http.Request) {
		if s.messenger.receive(w, r, s.group.leading.Load(), &contactsWord{}) {
			s.messenger.answer(w, s.peers.contacts())
		}
	})
	mux.HandleFunc("POST "+restorePath, s.restorer.takeBackup)
	mux.HandleFunc("POST "+termPath, func(w http.ResponseWriter, r *http.Request) {
		if s.messenger.receive(w, r, true, &termWord{}) {
			s.messenger.answer(w, &termAnswer{s.group.raft.CurrentTerm()})
		}
	})
	routes := httpproblem.Routes(mux, s.cfg.API)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, ok := peerID(r.TLS); !ok || !s.messenger.cluster.isMember(id) {
			s.messenger.refuse(w, directory.Refuse(directory.Forbidden, "%w", errNotMember))
			return
		}
		routes.ServeHTTP(w, r)
	})
}

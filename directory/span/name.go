package span

// A Name is the name of a step. The names are constants, so that no span is named after what a
// caller sent.
type Name uint8

// The steps. The first three are those with which a trace begins.
const (
	Request  Name = iota // a request at the API listener, from its arrival to the end of its answer
	Accept               // a write that another member forwarded, at the leader
	PeerPage             // a page of a peer, from the request or its arrival to the index

	Admit     // of a request: route, credential, limits, shares
	Parse     // parameters and body
	Project   // the members that all kinds of documents share, validated
	Authorise // policy on a change
	Policy    // policy on what a reader sees; its share of a lookup or a ranked query, added up
	Lookup    // the index, with policy
	Rank      // the ranked query, with policy
	Render    // registrations as the surface shows them
	Answer    // the answer of a change

	Write   // a change, from its proposal to its outcome
	Forward // of a write to the leader, until this member shows it
	Prepare // of a command, at the leader
	Queue   // wait for a log entry
	Commit  // of the log entry by a majority
	Apply   // of the log entry

	Invoke // an invocation through the gateway
	Judge  // of input or output, by the operation's schemas
	Agent  // the exchange with the agent

	Ask    // for a page at a peer's node, which may hold the request until there is one
	Verify // a page's form, key and signature, and its comparison with pages before it
	Fetch  // the records of a page
	Open   // and judge the records of a page
	Store  // of a page on disk
	Index  // of a page in memory
)

var names = [...]string{
	Request: "request", Accept: "write.accept", PeerPage: "federation.page",
	Admit: "admit", Parse: "parse", Project: "project", Authorise: "authorise", Policy: "policy", Lookup: "lookup",
	Rank: "rank", Render: "render", Answer: "answer",
	Write: "write", Forward: "write.forward", Prepare: "write.prepare", Queue: "write.queue", Commit: "write.commit",
	Apply:  "write.apply",
	Invoke: "invoke", Judge: "invoke.judge", Agent: "invoke.agent",
	Ask: "federation.ask", Verify: "federation.verify", Fetch: "federation.fetch", Open: "federation.open",
	Store: "federation.store", Index: "federation.index",
}

// String returns the name as traces have it.
func (n Name) String() string { return names[n] }

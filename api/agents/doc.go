// Package agents is the surface of draft-cui-ai-agent-discovery-invocation under /agents:
// the AIDIP registry, search, Agent Semantic Resolution, and invocation through the
// gateway. Its registrations are the same as every surface's, under the ids and in the
// shape of that draft.
package agents

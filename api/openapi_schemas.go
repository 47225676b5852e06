package api

import (
	"net/http"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// The schemas of what goes in and out, JSON Schema 2020-12. They serve twice: as
// components of /openapi.json, and each alone at /schemas/NAME.json, where ref
// makes the references of one or of the other. They describe and don't decide:
// package directory judges documents, also by rules that no schema can say
// (lengths in bytes, names that differ, base as a URI).

const dialect = "https://json-schema.org/draft/2020-12/schema"

type referrer func(name string) *openapi3.SchemaRef

// schemasOf returns all schemas by name.
func schemasOf(ref referrer) map[string]*openapi3.Schema {
	all := map[string]*openapi3.Schema{}
	for _, part := range []map[string]*openapi3.Schema{documentSchemas(ref), discoverySchemas(ref), answerSchemas(ref), agentSchemas(ref), operatorSchemas(ref)} {
		for name, schema := range part {
			all[name] = schema
		}
	}
	return all
}

// documentSchemas are the kinds of document that can be registered, by kind.
func documentSchemas(ref referrer) map[string]*openapi3.Schema {
	extensible := "Further members are kept and returned as sent, but for those that are the directory's own, which are dropped."
	return map[string]*openapi3.Schema{
		string(directory.KindAD): said(object([]string{"base"}, props{
			"base":                uri("Where the agent is reached."),
			"description":         text("One or two sentences.", directory.MaxDescription),
			"protocols":           array(text("A lowercase short name, with a version behind a slash.", 0), "What the agent speaks.", 0),
			"capabilities":        array(nil, "What the agent can do; names differ.", directory.MaxCapabilities, ref("capability")),
			"version":             text("The agent's own version.", 0),
			"vendor":              text("Who makes it.", 0),
			"identity":            text("Self-asserted, stored and never interpreted.", 0),
			"identity_type":       text("What kind of identity that is.", 0),
			"tags":                tags(),
			"supported_languages": array(text("", 0), "Language tags (BCP 47).", 0),
			"authentication":      notNull("How to authenticate to the agent."),
			"constraints":         notNull("What the agent does not do."),
			"status":              text("active unless it says otherwise.", 0),
			"examples": array(object([]string{"text"}, props{
				"id": text("", 0), "text": nonEmpty("A request that the agent serves."), "language": text("", 0), "tags": tags(),
			}), "Requests that the agent serves.", 0),
			"bindings": array(object([]string{"protocol", "endpoint"}, props{
				"protocol": nonEmpty(""), "endpoint": nonEmpty(""), "media_types": array(text("", 0), "", 0), "interaction_model": text("", 0), "transport": text("", 0),
			}), "Ways to reach the agent; by default each protocol at base.", 0),
		}), "A registration's document (draft-jimenez-agent-directory-01, 4.1). "+extensible),
		string(directory.KindAIDIP): said(&openapi3.Schema{
			Type: &openapi3.Types{"object"}, Required: []string{"name", "description", "endpoint"},
			AnyOf: openapi3.SchemaRefs{
				{Value: &openapi3.Schema{Required: []string{"operations"}, Properties: openapi3.Schemas{"operations": {Value: &openapi3.Schema{MinItems: 1}}}}},
				{Value: &openapi3.Schema{Required: []string{"inputs", "outputs"}}},
			},
			Properties: object(nil, props{
				"id":                  text("Its id, unless the directory shall give it one: unique in the directory, and not search or resolve.", directory.MaxName),
				"name":                nonEmpty("For people."),
				"description":         text("What the agent is for and what it can do.", directory.MaxDescription, 1),
				"version":             text("The agent's own.", 0),
				"publisher":           text("Who publishes it.", 0),
				"capabilities":        array(name(), "What the agent can do, in single words.", directory.MaxCapabilities),
				"tags":                tags(),
				"endpoint":            uri("Where the agent is invoked."),
				"protocols":           array(text("", 0), "What is spoken there; https by default.", 0),
				"supported_languages": array(text("", 0), "Language tags (BCP 47). An agent that lists none is not filtered out by language.", 0),
				"authentication": said(object(nil, props{
					"type": text("api_key, oauth2_bearer, mtls, none, …", 0), "instructions": text("How to get credentials, and never a secret itself.", 0),
					"scopes": array(text("", 0), "", 0),
				}), "How to authenticate to the agent. Without it, nothing is needed."),
				"status":     text("active unless it says otherwise.", 0),
				"operations": array(nil, "What the agent can be asked to do; names differ.", directory.MaxCapabilities, ref("operation")),
				"inputs":     said(object(nil, nil), "Without operations: a JSON Schema of what the agent takes."),
				"outputs":    said(object(nil, nil), "Without operations: a JSON Schema of what it gives."),
			}).Properties,
		}, "An agent's metadata (draft-cui-ai-agent-discovery-invocation, 3). "+extensible),
		"operation": said(object([]string{"name", "description", "inputs", "outputs"}, props{
			"name": {
				Type: &openapi3.Types{"string"}, Pattern: `^[A-Za-z0-9._~-]*[A-Za-z0-9_~-][A-Za-z0-9._~-]*$`,
				Not:         &openapi3.SchemaRef{Value: &openapi3.Schema{Enum: []any{"invoke"}}},
				Description: "A segment of a URL, and not invoke.",
			},
			"description": text("", directory.MaxDescription, 1),
			"inputs":      said(object(nil, nil), "A JSON Schema; checked where it is of 2020-12 or doesn't say."),
			"outputs":     said(object(nil, nil), "A JSON Schema, as above."),
			"examples":    array(object([]string{"input"}, props{"input": notNull(""), "output": notNull("")}), "Sample invocations.", 0),
		}), "An action of an agent (draft-cui-ai-agent-discovery-invocation, 3)."),
		string(directory.KindWoA):  said(woaSchema(), "A Web of Agents document of one agent (draft-gaikwad-woa, 4). "+extensible),
		string(directory.KindOASF): said(oasfSchema(), "A record of the Open Agentic Schema Framework, 0.3.1 to 1.1, with a locator or a module that tells where the agent is. "+extensible),
		string(directory.KindA2A): said(either(object([]string{"name"}, props{
			"name": nonEmpty("The agent's name for people."),
			"url":  uri("Where the agent is reached: A2A 0.3."),
			"supportedInterfaces": array(object([]string{"url"}, props{
				"url": uri(""), "protocolBinding": text("", 0), "protocolVersion": text("", 0),
			}), "Where the agent is reached, the preferred one first: A2A 1.0.", 0),
			"description": text("", directory.MaxDescription),
			"version":     text("", 0),
			"provider":    object(nil, props{"organization": text("", 0)}),
			"skills": array(object([]string{"id"}, props{
				"id": name(), "name": text("", 0), "description": text("", directory.MaxDescription), "tags": tags(), "examples": array(text("", 0), "", 0),
			}), "What the agent can do; ids differ.", directory.MaxCapabilities),
			"defaultInputModes":    array(text("", 0), "", 0),
			"preferredTransport":   text("", 0),
			"additionalInterfaces": array(object([]string{"url"}, props{"url": uri(""), "transport": text("", 0)}), "", 0),
			"securitySchemes":      object(nil, nil),
			"security":             array(&openapi3.Schema{}, "", 0),
			"securityRequirements": array(&openapi3.Schema{}, "", 0),
		}), "url", "supportedInterfaces"), "An A2A agent card, of 0.3 with url or of 1.0 with supportedInterfaces. "+extensible),
		string(directory.KindMCP): said(object([]string{"name"}, props{
			"name":           nonEmpty("The server's name, reverse DNS and a slash before its own."),
			"description":    text("", directory.MaxDescription),
			"version":        text("", 0),
			"version_detail": object(nil, props{"version": text("", 0)}),
			"status":         text("", 0),
			"remotes": array(object([]string{"url"}, props{
				"url": uri(""), "type": text("", 0), "transport_type": text("", 0),
				"headers": array(object([]string{"name"}, props{"name": nonEmpty("")}), "", 0),
			}), "", 0),
			"packages":   array(object(nil, props{"registryType": text("", 0), "registry_name": text("", 0), "identifier": text("", 0), "name": text("", 0), "version": text("", 0)}), "", 0),
			"repository": object(nil, props{"url": text("", 0)}),
		}), "An MCP registry's server.json, with a remote, a package or a repository. "+extensible),
		"capability": said(object([]string{"name", "type"}, props{
			"name":          name(),
			"type":          text("tool, skill, resource, prompt, or another.", directory.MaxCapabilityType, 1),
			"description":   text("", directory.MaxDescription),
			"tags":          tags(),
			"input_schema":  said(object(nil, nil), "A JSON Schema; checked where it is of 2020-12 or doesn't say."),
			"output_schema": said(object(nil, nil), "A JSON Schema, as above."),
		}), "What an agent can do (draft-jimenez-agent-directory-01, 4.1.1)."),
	}
}

// answerSchemas are the bodies of answers.
func answerSchemas(ref referrer) map[string]*openapi3.Schema {
	registration := props{
		"agent": nonEmpty("Its name."), "base": text("", 0), "name": text("Of a document of another kind than ad.", 0),
		"href":          reference("Its path here."),
		"lt":            atLeast(directory.MinLifetime, "The granted lifetime in seconds."),
		"expires_at":    instant("When it ends unless it is refreshed."),
		"registered_at": instant(""), "updated_at": instant(""),
		"projected":  said(boolean(), "true where the document is of another kind than ad."),
		"kind":       text("The document's kind, where it is not ad.", 0),
		"redacted":   said(boolean(), "true where members are withheld, by the origin or from this caller."),
		"provenance": nil,
	}
	item := object([]string{"agent", "base", "protocols", "capabilities", "href", "provenance"}, props{
		"agent": nonEmpty(""), "base": text("", 0), "description": text("", 0), "protocols": array(text("", 0), "", 0),
		"capabilities": array(object([]string{"name", "type"}, props{"name": text("", 0), "type": text("", 0)}), "", 0),
		"status":       text("Where it is not active.", 0), "href": reference("Its path here."), "projected": boolean(), "kind": text("", 0), "redacted": boolean(), "provenance": nil,
	})
	full := object([]string{"agent", "href", "lt", "expires_at", "registered_at", "updated_at", "provenance"}, registration)
	for _, s := range []*openapi3.Schema{full, item} {
		s.Properties["provenance"] = ref("provenance")
		claimed(s, "agent", "name", "base", "description", "protocols", "capabilities", "status")
	}
	full.AdditionalProperties.Schema = &openapi3.SchemaRef{Value: untrusted(anything("A member of its document."))}
	problem := object([]string{"type", "title", "status", "detail", "instance", "code", "message", "correlation_id", "error"}, props{
		"type": uri("Names the problem, and explains it."), "title": text("", 0), "status": atLeast(400, ""), "detail": text("What happened and what to do.", 0),
		"instance": uri(""), "pointer": text("JSON pointer to the member of the body that is wrong.", 0),
		"errors": array(object([]string{"pointer", "detail"}, props{"pointer": text("JSON pointer.", 0), "detail": text("", 0)}), "All that is wrong with the document.", directory.MaxViolations),
		"code":   text("Of draft-xu-efficient-agent-discovery-profile.", 0), "message": text("As detail.", 0),
		"correlation_id": text("As X-Request-Id.", 0), "retry_after": atLeast(1, "Seconds to wait."),
		"error":       said(object([]string{"code", "message"}, props{"code": text("", 0), "message": text("", 0)}), "Of draft-cui-ai-agent-discovery-invocation."),
		"origin_href": uri("Where the registration can be changed."),
		"policies":    array(text("", 0), "What decided.", 0), "violated-policies": array(text("", 0), "The quotas that are used up.", 0),
	})
	return map[string]*openapi3.Schema{
		"registration": said(full, "A registration in full: the members of its document, and what the directory knows of it."),
		"item":         said(item, "A registration as lookups list it."),
		"listing":      said(object([]string{"agents"}, props{"agents": array(nil, "", index.MaxCount, ref("item"))}), "A page of a lookup's answer."),
		"provenance":   provenance(),
		"granted":      said(object([]string{"lt"}, props{"lt": atLeast(directory.MinLifetime, "The granted lifetime in seconds.")}), "A shorter lifetime was granted than asked for."),
		"renewals": said(array(object([]string{"id"}, props{
			"id": nonEmpty("A registration's rid, or its agent name."), "lt": atLeast(directory.MinLifetime, "The lifetime in seconds; the one that was granted where it is not given."),
		}), "", directory.MaxRenewals), "Registrations to renew."),
		"renewed": said(array(object([]string{"id", "status"}, props{
			"id": nonEmpty("As asked."), "status": atLeast(204, "What a refresh of it alone would have been answered with; 204 where it is done."), "lt": atLeast(directory.MinLifetime, "The granted lifetime in seconds."),
			"problem": text("Why it was refused: the last segment of a problem's type.", 0), "detail": text("", 0),
		}), "", directory.MaxRenewals), "What became of each, in the order of what was asked."),
		"problem":     said(problem, "Why a request was refused (RFC 9457)."),
		"explanation": said(object([]string{"type", "title", "status", "explanation"}, props{"type": uri(""), "title": text("", 0), "status": atLeast(400, ""), "explanation": text("", 0)}), "What a problem means and what to do."),
		"well-known": said(object([]string{"registration", "lookup", "max_count"}, props{
			"registration": reference("Where to register."), "lookup": text("A URI template (RFC 6570).", 0), "max_count": atLeast(1, "The most items on a page."),
			"refresh": reference("Where many are refreshed at once."), "max_refresh": atLeast(1, "How many."),
			"authentication": array(text("", 0), "The ways in which a caller may show who it is: x509-svid, wpt, oauth, jwt-svid.", 0),
			"plain_bearer":   plainBearer(),
		}), "The directory's interfaces (draft-jimenez-agent-directory-01, 3.1)."),
		"protected-resource": said(object([]string{"resource", "authorization_servers"}, props{
			"resource": uri("What tokens are for: their audience."), "authorization_servers": array(uri(""), "Whose access tokens are taken.", 0),
			"bearer_methods_supported": array(text("", 0), "", 0), "resource_name": text("", 0), "plain_bearer": plainBearer(),
			"tls_client_certificate_bound_access_tokens": said(boolean(), "Whether a token must be bound to the client certificate (RFC 8705)."),
		}), "How to get an access token for this directory (RFC 9728)."),
		"proof": said(object([]string{"record", "page", "keys"}, props{
			"record": nonEmpty("The signed record, an SD-JWT."), "page": nonEmpty("The signed page that lists it."), "keys": nonEmpty("The origin's signed key document."),
			"bundle": said(object(nil, nil), "The origin's SPIFFE bundle."), "checkpoint": text("", 0), "index": atLeast(0, ""), "path": array(text("", 0), "", 0),
			"ext":  said(object(nil, nil), "What later releases add; nobody signed it."),
			"crit": array(text("", 0), "Members of ext without which the file must not be judged.", 0),
		}), "All that roster verify needs."),
		"evidence": said(object([]string{"offence", "keys", "bundle"}, props{
			"offence": oneOf("E1", "E3"), "pages": array(text("", 0), "E1: the two signed pages.", 0), "keys": array(text("", 0), "Signed key documents: those that list the pages' keys; of E3 the two.", 0),
			"bundle": said(object(nil, nil), "The domain's SPIFFE bundle."),
		}), "What shows that a domain contradicted itself: all that roster verify needs."),
		"mcp-message": said(object([]string{"jsonrpc"}, props{
			"jsonrpc": oneOf("2.0"), "method": text("", 0), "params": object(nil, nil), "result": object(nil, nil), "error": object([]string{"code", "message"}, nil),
		}), "A message of the Model Context Protocol."),
		"registered": said(object([]string{"href", "created"}, props{
			"href": reference("The registration's path."), "created": said(boolean(), "false: it was replaced."), "lt": atLeast(directory.MinLifetime, "The granted lifetime in seconds, where it is shorter than asked for."),
			"sunset": text("When it ends unless it is refreshed.", 0), "roster_index": text("Where the change is in the domain's history.", 0),
		}), "What the tool register_agent did: what a registration's answer says in its header."),
		"linkset":      said(object([]string{"linkset"}, props{"linkset": array(object(nil, nil), "", 0)}), "Links (RFC 9264)."),
		"woa-document": frontedSchema(ref),
		"schema":       said(object(nil, nil), "A JSON Schema 2020-12."),
		"openapi":      said(object([]string{"openapi", "info", "paths"}, nil), "An OpenAPI 3.1 document."),
	}
}

func provenance() *openapi3.Schema {
	return said(object([]string{"origin_authority", "revision", "expires_at", "verification"}, props{
		"origin_authority": text("The trust domain that registered it.", 0), "origin_service": uri("That domain's directory."),
		"origin_href": uri("The registration there."), "origin_signature": reference("Its signed record, here."),
		"registrant": text("Who owns it.", 0), "revision": atLeast(1, "Of its statement."),
		"registered_at": instant(""), "updated_at": instant(""), "expires_at": instant(""),
		"received_at": instant("When it came here."), "received_from": text("The domain that handed it over.", 0),
		"visibility": text("domain, mesh, or peers:DOMAIN,…", 0),
		"verification": object([]string{"state"}, props{
			"state": oneOf("local", "verified"), "unconfirmed": said(boolean(), "Restored from a backup, and not refreshed since: no peer sees it."), "disputed": said(boolean(), "Its origin contradicted itself and is frozen: nothing newer is taken of it."), "key": text("That verified it.", 0), "logged": boolean(), "checked_at": instant(""),
			"probe": said(object([]string{"state"}, props{
				"state": oneOf("verified", "mismatch", "unreachable"), "members": array(text("", 0), "In which it differs.", 0), "reason": text("Why nothing was had.", 0), "checked_at": instant(""),
			}), "What the agent says of itself at its base, compared with its registration; where the node asks."),
		}),
	}), "Where a registration comes from, who vouches for it, and how fresh it is.")
}

// operatorSchemas are what operators see and send.
func operatorSchemas(ref referrer) map[string]*openapi3.Schema {
	moment := &openapi3.Schema{Type: &openapi3.Types{"string"}, Format: "date-time"}
	endpoint := func() *openapi3.Schema {
		return said(object([]string{"url", "profile"}, props{
			"url": uri("Its https URL."), "profile": oneOf(directory.ProfileSPIFFE, directory.ProfileWeb),
			"id": uri("Of https_spiffe: whose SVID it shows; any node of the domain if not given."),
		}), "Where the bundle is had anew (SPIFFE Federation, 5).")
	}
	orNone := endpoint()
	orNone.Required, orNone.Description = nil, "Of set: where the bundle is had anew; {} is nowhere."
	return map[string]*openapi3.Schema{
		"spiffe-bundle": said(object([]string{"keys", "spiffe_sequence", "spiffe_refresh_hint"}, props{
			"keys":            array(object([]string{"kty", "use"}, props{"kty": text("", 0), "use": text("", 0)}), "The domain's authorities.", 0),
			"spiffe_sequence": atLeast(0, "Rises with each new authority."), "spiffe_refresh_hint": atLeast(0, "Seconds after which to look again."),
		}), "A SPIFFE trust bundle: whom to believe of this domain."),
		"raft": said(object([]string{"leader", "peers"}, props{
			"quotas": said(object([]string{"registrations", "registrations_limit", "bytes", "bytes_limit", "owners", "largest_share"}, props{
				"registrations": atLeast(0, "Of the domain."), "registrations_limit": atLeast(0, "0 for none."),
				"bytes": atLeast(0, "Of the documents, as they were written."), "bytes_limit": atLeast(0, "0 for none."),
				"owners":        atLeast(0, "Identities that own a registration."),
				"largest_share": said(&openapi3.Schema{Type: &openapi3.Types{"number"}}, "The part of its quota that the owner uses who uses most of it; exact to a 64th."),
			}), "How much of its quotas the domain uses."),
			"leader": text("A SPIFFE ID; empty where none is known.", 0),
			"peers": array(object([]string{"id", "address", "voter"}, props{
				"id": uri(""), "address": text("", 0), "api": uri("The base URL of its directory."), "voter": boolean(), "last_contact": moment, "unheard": said(boolean(), "The leader has not heard it since it leads."),
				"reads": versions("What the node's release reads.", array(atLeast(1, ""), "", 0)),
			}), "", 0),
			"written":  versions("What the domain writes.", atLeast(1, "")),
			"admitted": array(object([]string{"id", "until"}, props{"id": uri(""), "until": moment}), "Nodes that may join.", 0),
		}), "How a domain's nodes hold its directory together."),
		"member": said(object(nil, props{
			"id": uri("A node's SPIFFE ID."), "withdraw": said(boolean(), "Of an admission: take it back."),
		}), "Which node is meant."),
		"new-owner": said(object([]string{"owner"}, props{
			"owner": nonEmpty("The identity that is to own it: a SPIFFE or WIMSE URI, or oauth:ISSUER#SUBJECT."),
		}), "To whom a registration is given."),
		"owner": said(object([]string{"owner"}, props{
			"owner": nonEmpty("An identity: a SPIFFE or WIMSE URI, or oauth:ISSUER#SUBJECT."),
		}), "Whose registrations are meant."),
		"json":    said(&openapi3.Schema{}, "What the operation's schema says; any JSON."),
		"nothing": said(object(nil, nil), "Nothing needs saying."),
		"restored": said(object([]string{"backup", "before", "now", "registrations"}, props{
			"backup": text("EPOCH.REVISION that was restored.", 0), "before": text("EPOCH.REVISION at which the domain was.", 0),
			"now": text("EPOCH.REVISION at which it is, in its new epoch.", 0), "registrations": atLeast(0, ""),
		}), "What a restore did."),
		"flagged": said(object([]string{"flagged"}, props{
			"flagged": array(object([]string{"agent", "origin", "href", "flags"}, props{
				"agent": text("", 0), "origin": text("", 0), "href": reference(""), "flags": array(oneOf("repetition", "density", "scatter", "duplicate"), "", 0),
			}), "", 0),
		}), "Registrations that rank below what is honest."),
		"owned": said(object([]string{"registrations"}, props{
			"registrations": array(object([]string{"rid", "agent", "expires_at"}, props{
				"rid": text("", 0), "agent": text("", 0), "expires_at": moment,
			}), "", 0),
			"next": text("What to ask for with after; absent where there are no more.", 0),
		}), "Registrations of one owner."),
		"members": said(object([]string{"members"}, props{
			"members": array(object([]string{"id", "domain", "address", "state"}, props{
				"id": uri(""), "domain": text("", 0), "address": text("", 0), "state": text("alive, or lost: it was a member and is looked for", 0),
			}), "", 0),
		}), "The nodes in the mesh's gossip pool."),
		"peers": said(object([]string{"peers"}, props{
			"peers": array(object([]string{"domain", "state", "lag_revisions", "lag_seconds"}, props{
				"domain": text("", 0), "state": text("pending, active, behind, failing, unsupported, unlisted, frozen, terminated: never active where its word is too old.", 0),
				"agreed": oneOf("pending", "active", "frozen", "terminated"), "fingerprint": text("SHA-256 of the peer's X.509 authorities.", 0),
				"exported": said(boolean(), "Whether the peer may have what is for the mesh."), "unlisted": said(boolean(), "Whether the peer lets this domain have nothing."),
				"invited_until": moment, "ended_by": oneOf("us", "peer"), "head_age_seconds": &openapi3.Schema{Type: &openapi3.Types{"number"}},
				"holds_back": array(text("head, page or statement", 0), "Structures that are written in a lower format because of the peer.", 0),
				"addresses":  array(text("", 0), "", 0), "gossip": array(text("", 0), "By which its pool is joined, host:port.", 0),
				"export": peerRules(), "import": peerRules(), "hidden": said(boolean(), "Whether what the peer told isn't shown, since it wasn't heard for long."),
				"records": atLeast(0, "Held of the peer, filtered or not."), "bytes": atLeast(0, "Of these on disk."),
				"records_limit": atLeast(0, "How many may be held; absent for any number."), "bytes_limit": atLeast(0, "How many bytes of them; absent for any number."),
				"missing": atLeast(0, "Registrations whose records nobody gave yet."), "over_quota": atLeast(0, "Registrations for which there was no room."),
				"unsupported": text("For what a later release is needed to follow the peer: a page or head in a format that this one can't read.", 0),
				"unopened":    said(object(nil, nil), "Records that are held until a later release can read them, by the number of their format."),
				"bytes_in":    atLeast(0, "Of bodies that its nodes answered."), "bytes_out": atLeast(0, "Of bodies that its nodes were answered."),
				"gossip_in": atLeast(0, "Bytes that its nodes gossiped to this one."), "gossip_out": atLeast(0, "Bytes that this node gossiped to them."),
				"watermark": text("EPOCH.REVISION that this node has applied.", 0), "tip": text("EPOCH.REVISION that the peer has announced.", 0),
				"lag_revisions": atLeast(0, ""), "lag_seconds": &openapi3.Schema{Type: &openapi3.Types{"number"}},
				"last_heard": moment, "last_error": text("", 0),
				"bundle_endpoint": uri("Where the peer's bundle is had anew."), "bundle_checked": moment, "bundle_error": text("Why it can't be had; the last good one is believed.", 0),
				"received": said(object(nil, nil), "Messages that name the peer, by what the gate said, whoever brought them."),
				"refused":  said(object(nil, nil), "Messages that the peer's nodes brought and that were refused, by the reason, whomever they name."),
				"evidence": array(object([]string{"id", "found"}, props{"id": nonEmpty(""), "found": moment}), "That the peer contradicted itself, the oldest first; of this node.", 0),
			}), "", 0),
		}), "How the peered domains stand, as this node sees it."),
		"keys": said(object([]string{"epoch", "seq", "keys"}, props{
			"epoch": atLeast(0, ""), "seq": atLeast(0, "The revision at which the document was issued."), "expires": moment,
			"keys": array(object([]string{"id", "node"}, props{
				"id": text("Its RFC 7638 thumbprint.", 0), "node": uri(""), "rotated": said(boolean(), "The node signs by another, and this one is believed for some minutes yet."),
			}), "", 0),
			"revoked": array(text("", 0), "Ids of keys that are believed no more.", 0),
		}), "Which keys sign for the domain."),
		"revoke-key": said(object([]string{"key"}, props{"key": nonEmpty("Its id: an RFC 7638 thumbprint.")}), "Which key to revoke."),
		"peer-invite": said(object([]string{"domain"}, props{
			"domain": nonEmpty("The trust domain that is invited."), "life": atLeast(1, "For how many seconds it holds; an hour if not given, a week at most."),
		}), "Whom to invite."),
		"invitation": said(object([]string{"token", "until", "fingerprint"}, props{
			"token": nonEmpty("For \"roster peer accept\" at the other side."), "until": moment, "fingerprint": text("SHA-256 of this domain's X.509 authorities.", 0),
		}), "A token, and what to compare at the other side."),
		"peer-accept": said(object([]string{"token"}, props{"token": nonEmpty("Of the domain that invites.")}), "A token."),
		"peer-change": said(object([]string{"domain", "verb"}, props{
			"domain": nonEmpty("The peer's trust domain."), "verb": oneOf("remove", "release", "export", "unexport", "set"), "export": peerRules(), "import": peerRules(),
			"addresses": array(uri("https://HOST[:PORT] of a node."), "Of set.", 0), "gossip": array(text("host:port", 0), "Of set.", 0),
			"bundle_endpoint": orNone,
		}), "What to do with a peering; what set isn't given stays as it is."),
		"peer-offer": said(object([]string{"domain", "bundle", "addresses", "secret"}, props{
			"domain": nonEmpty("The invited trust domain."), "bundle": said(object(nil, nil), "Its SPIFFE bundle, a JWKS object."),
			"addresses": array(uri("https://HOST[:PORT] of a node."), "", 0), "gossip": array(text("host:port", 0), "", 0), "bundle_endpoint": endpoint(), "secret": nonEmpty("Of the token."),
		}), "What an invited domain says of itself."),
		"policy": said(object([]string{"policy"}, props{
			"policy":  text("Cedar; to set an empty one is to go back to what is built in.", 0),
			"version": atLeast(0, "The revision from which on it holds; to set one, that which must be in force then."),
		}), "The domain's policy."),
		"peering": said(object([]string{"domain", "bundle", "addresses"}, props{
			"domain": nonEmpty("The peer's trust domain."), "state": oneOf("pending", "active", "frozen", "terminated"),
			"bundle": said(object(nil, nil), "The peer's SPIFFE bundle, a JWKS object."), "addresses": array(uri("https://HOST[:PORT] of a node."), "", 0),
			"gossip": array(text("host:port", 0), "", 0), "mesh": said(boolean(), "Whether the peer may have what is for the whole mesh."),
			"bundle_endpoint": endpoint(),
		}), "What is agreed with another domain."),
	}
}

// The words that the schemas are made of.

type props map[string]*openapi3.Schema

func said(s *openapi3.Schema, description string) *openapi3.Schema {
	s.Description = description
	return s
}

// untrusted marks what a registrant wrote, for whoever hands it to a model: it is
// data, whatever it says (WOA-036).
func untrusted(s *openapi3.Schema) *openapi3.Schema {
	s.Extensions = map[string]any{"x-untrusted": true}
	return s
}

// claimed marks those of s's members that have what a registrant wrote.
func claimed(s *openapi3.Schema, names ...string) {
	for _, name := range names {
		if p := s.Properties[name]; p != nil {
			untrusted(p.Value)
		}
	}
}

func object(required []string, ps props) *openapi3.Schema {
	s := &openapi3.Schema{Type: &openapi3.Types{"object"}, Required: required, Properties: openapi3.Schemas{}}
	for name, p := range ps {
		s.Properties[name] = &openapi3.SchemaRef{Value: p}
	}
	return s
}

// array is of items of a schema, or of what a reference refers to; most is 0
// where they are not counted.
func array(items *openapi3.Schema, description string, most uint64, ref ...*openapi3.SchemaRef) *openapi3.Schema {
	s := &openapi3.Schema{Type: &openapi3.Types{"array"}, Items: &openapi3.SchemaRef{Value: items}, Description: description}
	if len(ref) > 0 {
		s.Items = ref[0]
	}
	if most > 0 {
		s.MaxItems = &most
	}
	return s
}

func text(description string, most uint64, least ...uint64) *openapi3.Schema {
	s := &openapi3.Schema{Type: &openapi3.Types{"string"}, Description: description}
	if most > 0 {
		s.MaxLength = &most
	}
	if len(least) > 0 {
		s.MinLength = least[0]
	}
	return s
}

func nonEmpty(description string) *openapi3.Schema { return text(description, 0, 1) }

func uri(description string) *openapi3.Schema {
	return &openapi3.Schema{Type: &openapi3.Types{"string"}, Format: "uri", Description: description, MinLength: 1}
}

func reference(description string) *openapi3.Schema {
	return &openapi3.Schema{Type: &openapi3.Types{"string"}, Format: "uri-reference", Description: description}
}

func instant(description string) *openapi3.Schema {
	return &openapi3.Schema{Type: &openapi3.Types{"string"}, Format: "date-time", Pattern: `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`, Description: description}
}

// plainBearer is shared by what tells how callers show who they are.
func plainBearer() *openapi3.Schema {
	return said(oneOf("reads", "always"), "For what access tokens are good that are bound to no client certificate; absent where they are not taken.")
}

func boolean() *openapi3.Schema { return &openapi3.Schema{Type: &openapi3.Types{"boolean"}} }

func atLeast(n float64, description string) *openapi3.Schema {
	return &openapi3.Schema{Type: &openapi3.Types{"integer"}, Min: &n, Description: description}
}

func upTo(most float64) *openapi3.Schema {
	s := atLeast(0, "")
	s.Max = &most
	return s
}

func oneOf(values ...any) *openapi3.Schema {
	return &openapi3.Schema{Type: &openapi3.Types{"string"}, Enum: values}
}

func anything(description string) *openapi3.Schema {
	return &openapi3.Schema{Type: &openapi3.Types{"array", "boolean", "null", "number", "object", "string"}, Description: description}
}

func notNull(description string) *openapi3.Schema {
	return &openapi3.Schema{Type: &openapi3.Types{"array", "boolean", "number", "object", "string"}, Description: description}
}

// name is a capability's: lookups could not ask for an asterisk.
func name() *openapi3.Schema {
	return &openapi3.Schema{Type: &openapi3.Types{"string"}, MinLength: 1, Pattern: `^[^*]*$`}
}

func tags() *openapi3.Schema {
	return array(text("", directory.MaxTag), "", directory.MaxTags)
}

// schemaFiles returns the text of every schema as it stands alone.
func (s *Server) schemaFiles() map[string][]byte {
	files := map[string][]byte{}
	for name, schema := range schemasOf(func(name string) *openapi3.SchemaRef { return &openapi3.SchemaRef{Ref: name + ".json"} }) {
		schema.SchemaDialect, schema.SchemaID = dialect, s.cfg.PublicURL+"/schemas/"+name+".json"
		b, err := json.Marshal(schema, json.Deterministic(true))
		if err != nil {
			panic(err) // they are constants
		}
		files[name] = append(b, '\n')
	}
	return files
}

// schema answers GET /schemas/{kind}.json.
func (s *Server) schema(w http.ResponseWriter, c *call) error {
	b, ok := s.described().schemas[c.vars["kind"]]
	if !ok {
		return directory.Refuse(directory.NotFound, "There is no schema called %.100q.", c.vars["kind"])
	}
	return sendPublic(w, c, "application/schema+json", b)
}

// peerRules describes directory.PeerRules.
func peerRules() *openapi3.Schema {
	return said(object(nil, props{
		"names":        array(nonEmpty("An agent's name, or the beginning of one and *."), "", 0),
		"capabilities": array(nonEmpty("A capability's name, or the beginning of one and *."), "", 0),
		"kinds":        array(nonEmpty("A kind."), "", 0),
		"records":      atLeast(0, "Of import: how many registrations are held at most; 0 for limits.records_per_peer."),
		"bytes":        atLeast(0, "Of import: how large their records are together at most; 0 for limits.bytes_per_peer."),
		"owner_share":  atLeast(0, "Of import: one owner, or all whose owner is withheld, may take one part in so many of these; 0 for 16."),
		"max_lifetime": atLeast(0, "Of import: clips deadlines, in seconds after they were set; 0 doesn't."),
		"on_stale":     oneOf("serve", "hide"),
	}), "What is let through of one direction of a peering; a list that is absent lets all through.")
}

// versions is the schema of a log's, snapshot's and wire's version and of what is
// said of each structure's formats.
func versions(about string, formats *openapi3.Schema) *openapi3.Schema {
	return said(object([]string{"log", "snapshot", "wire"}, props{
		"log": atLeast(1, ""), "snapshot": atLeast(1, ""), "wire": atLeast(1, ""),
		"formats": said(object(nil, props{
			"head": formats, "page": formats, "statement": formats,
		}), "Of signed structures; 1 where it is absent."),
	}), about)
}

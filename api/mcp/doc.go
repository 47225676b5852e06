// Package mcp offers the directory as tools to model clients, by the Model Context
// Protocol (jimenez C): over streamable HTTP at /mcp (Handler), and on standard input and
// output (Serve).
//
// A tool is a translation and nothing more: its arguments make a request to one of the
// routes, and that route's answer is its result. So a tool has the policy, limits and
// bodies of its route, and its schemas are those of the route's description (package
// openapi).
package mcp

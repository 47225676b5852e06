// Package openapi reads the description of the HTTP API, api/openapi.yaml, and completes
// it for a node: for /openapi.json, for /schemas, and for the tools of package mcp.
//
// The file is an OpenAPI document for people. To keep it short, it leaves out the parts that follow
// from the callers of a route and from the table of problems; Describe fills that in:
//
//   - x-callers has, for the tag of an operation, its description, the security requirement,
//     the headers of its good answers and the problems that they all share;
//   - x-headers of a response becomes its headers;
//   - x-problems of an operation becomes the answers that refuse, one for each status, with
//     the titles and explanations of directory/problem. Operations share them as components;
//   - {domain} and {url} in title, servers and security schemes are the node's;
//   - routes that the node doesn't have are left out, and components that no route uses.
//
// The schemas describe and don't decide: package directory validates documents, also by
// rules that no schema can express (lengths in bytes, distinct names, base as a URI). Tests
// hold the two against each other, and every answer that tests see against its schema.
package openapi

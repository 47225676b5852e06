// Package dev runs a development mesh: whole domains on loopback, peered with each other,
// with sample agents that register and refresh through the API. `roster dev` is this
// package; scenarios and load tests start it as a process and read its mesh.json.
//
//	options := dev.Options{Domains: 3, Nodes: 1, Out: os.Stdout, Program: "roster"}
//	err := dev.Run(ctx, options)               // until ctx ends
//
//	mesh, err := dev.ReadMesh(dir)             // mesh.json, which says when all is ready
//	id, err := dev.Mint(dir, "alpha.test", "/agent/carol")
//
// # Files
//
//	dev      the options; start, peering, readiness and end of a mesh
//	plan     mesh.json, certificate authorities, identities and configurations
//	ports    addresses on loopback, held until their node starts
//	nodes    a node in this process, or in a process of its own
//	client   clients of the API and of admin listeners
//	samples  the sample agents
//	print    env.sh, curlrc, and the text with the commands to try
package dev

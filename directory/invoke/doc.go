// Package invoke says how an agent is invoked, by its registration: the operations that
// it offers ([Operations]), which of them a request means ([Contract.Choose]), and whether
// input and output meet its schemas ([Task], [Contract.Precheck]). Package gateway does
// the invoking.
package invoke

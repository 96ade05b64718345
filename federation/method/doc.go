// Package method says what a federated method is: what is learned, what a client adds, what the server does. It runs
// nothing; federation/engine does.
//
// A base method (PromptFL, FedPHA, ...) embeds Base and writes Params and Logits, plus Loss if it differs. A wrapper
// (FedProx, ...) embeds Method and works over any base method and any other wrapper. The full interface is implemented
// by all of them; there are no optional interfaces that a wrapper could hide.
package method

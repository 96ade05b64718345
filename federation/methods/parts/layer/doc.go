// Package layer defines what the table of methods is made of, Def and Builder, and asks the layers of a stack, a method
// inside its wrappers, what they are and what they share. It imports federation/method and federation/configtags.
package layer

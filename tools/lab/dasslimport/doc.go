// Package dasslimport converts settings of public code based on Dassl (CoOp and its descendants; FedPHA, FedOTP,
// FedPGP). It reads yacs files and command lines, and writes the equivalent promptfed configuration and a list of the
// settings that have no equivalent.
package dasslimport

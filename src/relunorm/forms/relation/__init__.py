"""How the units of two networks relate, and what that proves about their difference."""

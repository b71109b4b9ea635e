// What is said on standard error while work goes on.
#pragma once

#include <string>

#include "mrcfa.hpp"

namespace mrcfa {

void notice(const std::string& sentence);

/// Something that should have run was skipped: said, or an Error where the options are strict.
void notice_skipped(const Options& options, const std::string& sentence);

}  // namespace mrcfa

// Warnings: a sentence on standard error about something that does not stop the work.
#pragma once

#include <string>

namespace mrcfa {

void notice(const std::string& sentence);

}  // namespace mrcfa
